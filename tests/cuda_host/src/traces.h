// A kernel's shared arrays and the buffers that it writes, of which the test notes who uses what (`traces.rs`). It says whether a place is there.

enum { READ, WRITE, WRITE_THE_SAME };
enum { AT_BARRIER, FOR_LANES, FENCE, COUNTED, LAST_COUNTED, COPIES_DONE, END };

struct Tracer {
    void* state;
    bool (*shared)(void* state, unsigned long long* traces, unsigned length, unsigned place, unsigned count, unsigned how);
    void (*buffer)(void* state, const void* place, unsigned bytes, unsigned how);
    void (*copy)(void* state, unsigned* to, unsigned long long* traces, const void* from, bool within);
    void (*event)(void* state, unsigned event);
};
static const Tracer* tracer;

static inline void tell(unsigned event) { tracer->event(tracer->state, event); }

template <typename T, unsigned length> struct Shared {
    // They start with all bits set, as do the traces: nobody was there.
    T elements[length] __attribute__((aligned(16)));
    unsigned long long traces[length];

    struct Place {
        Shared* of;
        unsigned at;

        bool note(unsigned count, unsigned how) const { return tracer->shared(tracer->state, of->traces, length, at, count, how); }
        operator T() const { return note(1, READ) ? of->elements[at] : T(); }
        void operator=(T x) const {
            const bool is_there = at < length, same = is_there && __builtin_memcmp(of->elements + at, &x, sizeof x) == 0;
            if (note(1, same ? WRITE_THE_SAME : WRITE)) of->elements[at] = x;
        }

        // Four at once, as 16 bytes.
        Place operator&() const { return *this; }
        operator uint4*() const {
            static uint4 nowhere;
            return note(4, WRITE) ? (uint4*)(of->elements + at) : &nowhere;
        }
        void read(unsigned (&words)[4]) const {
            if (note(4, READ)) __builtin_memcpy(words, of->elements + at, sizeof words);
        }
        void copy(const void* from, bool within) const {
            if (note(4, WRITE)) tracer->copy(tracer->state, (unsigned*)(of->elements + at), of->traces + at, from, within);
        }
    };
    Place operator[](unsigned at) { return {this, at}; }
};

template <typename T> struct Global {
    T* start;
    Global(T* start) : start(start) {}

    struct Place {
        T* at;
        void note(unsigned how) const { tracer->buffer(tracer->state, at, sizeof(T), how); }
        operator T() const {
            note(READ);
            return *at;
        }
        void operator=(T x) const {
            note(__builtin_memcmp(at, &x, sizeof x) ? WRITE : WRITE_THE_SAME);
            *at = x;
        }
        T* operator&() const { return at; }
    };
    Place operator[](unsigned index) const { return {start + index}; }
};

// Threads take turns at barriers alone.
static inline unsigned atomicInc(unsigned* place, unsigned largest) {
    unsigned before = *place;
    *place = before >= largest ? 0 : before + 1;
    tell(before >= largest ? LAST_COUNTED : COUNTED);
    return before;
}

static inline void __threadfence() { tell(FENCE); }

static inline void arrive(unsigned event) {
    tell(event);
    barrier(barrier_data);
}

static inline void __syncthreads() { arrive(AT_BARRIER); }

extern "C" void kiln_host_begin(const uint3* grid, const uint3* block, void (*wait)(void*), const Tracer* traces) {
    gridDim = *grid;
    blockIdx = *block;
    barrier = wait;
    tracer = traces;
    for (char* byte = __start_kiln_shared; byte != __stop_kiln_shared; byte++) *byte = (char)0xff;
}

extern "C" void kiln_host_thread(const uint3* thread, void* data) {
    threadIdx = *thread;
    barrier_data = data;
}

// What the lanes of a warp do together, for one thread at a time: each says what the others need, waits for all of the block, and looks
// at what they said. They say it in two places by turns: who is ahead writes where nobody reads any more.
static unsigned said[2][1024][6];
static unsigned char turns[1024];

// What the lanes of the thread's warp say, once all have.
template <int count> static __attribute__((noinline)) unsigned (*hear(const unsigned (&words)[count]))[6] {
    unsigned thread = threadIdx.x, turn = turns[thread] ^= 1;
    __builtin_memcpy(said[turn][thread], words, sizeof words);
    arrive(FOR_LANES);
    return said[turn] + thread / 32 * 32;
}

template <typename T> static inline T exchange(T x, unsigned lanes) {
    unsigned own[(sizeof(T) + 3) / 4] = {};
    __builtin_memcpy(own, &x, sizeof x);
    T of_other;
    __builtin_memcpy(&of_other, hear(own)[threadIdx.x % 32 ^ lanes], sizeof x);
    return of_other;
}
