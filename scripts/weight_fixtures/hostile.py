"""Pickles and archives that mean harm. None is ever loaded here; a reader must refuse each in bounded time and memory.

The commands in them, were they to run, would only make a file called `kiln-was-here` in the temporary folder.
"""

from __future__ import annotations

import struct

from weight_fixtures import formats, hostile_archives, store
from weight_fixtures.opcodes import (
    FOUR,
    archive,
    bound,
    call,
    checkpoint,
    glob,
    integer,
    numbers,
    put,
    storage,
    tensor,
    text,
    zipped_body,
)

HARM = "touch /tmp/kiln-was-here"


def hostile() -> None:
    commands()
    programs()
    memory()
    tensors()
    arrays()
    hostile_archives.truncated()
    hostile_archives.archives()


def commands() -> None:
    """Each way that a pickle has to name a callable and call it."""
    why = "a global that is not on the list"
    value = text(HARM)
    put("run_global", archive(checkpoint(call("posix", "system", value))), why, "posix.system")
    put("run_os", archive(checkpoint(call("os", "system", value))), why, "os.system")
    put(
        "run_stack_global",
        archive(checkpoint(text("os") + text("system") + b"\x93(" + value + b"tR", protocol=4)),
        why,
        "os.system",
    )
    put(
        "run_memoized",
        archive(
            checkpoint(text("os") + b"\x94" + text("system") + b"\x940h\x00h\x01\x93(" + value + b"tR", protocol=4)
        ),
        why,
        "os.system",
    )
    put("run_inst", archive(checkpoint(b"(" + value + b"ios\nsystem\n", protocol=1)), why, "os.system")
    put("run_obj", archive(checkpoint(b"(" + glob("os", "system") + value + b"o", protocol=1)), why, "os.system")
    put(
        "run_newobj",
        archive(checkpoint(glob("subprocess", "Popen") + b"(" + value + b"t\x81")),
        why,
        "subprocess.Popen",
    )
    put(
        "run_newobj_ex",
        archive(checkpoint(glob("subprocess", "Popen") + b"(" + value + b"t}\x92", protocol=4)),
        why,
        "subprocess.Popen",
    )
    put(
        "run_eval",
        archive(checkpoint(call("builtins", "eval", text("__import__('os').getpid()")))),
        why,
        "builtins.eval",
    )
    put("run_old_eval", archive(checkpoint(call("__builtin__", "eval", text("1 + 1")))), why, "eval")
    put(
        "run_getattr",
        archive(checkpoint(call("builtins", "getattr", glob("os", "path"), text("join")))),
        why,
        "builtins.getattr",
    )
    put(
        "run_dotted",
        archive(checkpoint(text("torch._utils") + text("_rebuild_tensor_v2.__globals__") + b"\x93", protocol=4)),
        why,
        "__globals__",
    )
    put("run_torch_load", archive(checkpoint(call("torch", "load", text("/etc/passwd")))), why, "torch.load")
    put(
        "run_torch_inner",
        archive(checkpoint(call("torch._utils", "_import_dotted_name", text("os.system")))),
        why,
        "torch._utils._import_dotted_name",
    )
    put("run_storage_named", archive(checkpoint(call("evil", "FloatStorage", value))), why, "evil.FloatStorage")
    put("run_extension", archive(checkpoint(b"\x82\x01(" + value + b"tR")), "an extension code")
    put(
        "run_build",
        archive(
            checkpoint(
                glob("collections", "OrderedDict") + b")R" + b"}" + text("__setstate__") + glob("os", "system") + b"sb"
            )
        ),
        why,
        "os.system",
    )
    put("run_stranger", archive(checkpoint(call("package.tools", "run", value))), "a call of what is not known", "package.tools.run")
    inst = b"(" + value + b"ipackage.tools\nrun\n"
    put("run_stranger_inst", archive(checkpoint(inst, protocol=1)), "a call of what is not known", "package.tools.run")
    inner = glob("torch.serialization", "load") + b")\x81"
    put("run_torch_object", archive(checkpoint(inner)), why, "torch.serialization.load")
    put(
        "run_private_object",
        archive(checkpoint(glob("_posixsubprocess", "fork_exec") + b")\x81")),
        why,
        "_posixsubprocess.fork_exec",
    )
    put(
        "run_reduce_text",
        archive(checkpoint(text("os.system") + b"(" + value + b"tR")),
        "a call of what is no callable",
    )
    put(
        "run_unused",
        archive(b"\x80\x02" + call("os", "system", value) + b"0" + checkpoint(tensor())[2:], _0=FOUR),
        why,
        "os.system",
    )
    put("run_in_key", archive(b"\x80\x02}" + call("os", "system", value) + tensor() + b"s.", _0=FOUR), why, "os.system")
    put(
        "run_persistent_id",
        archive(
            checkpoint(
                b"(" + text("storage") + call("os", "system", value) + text("0") + text("cpu") + integer(4) + b"tQ"
            )
        ),
        why,
        "os.system",
    )
    put("run_module_id", archive(checkpoint(b"(" + text("module") + glob("os", "system") + b"NNtQ")), why, "os.system")
    put("run_bare_pickle", checkpoint(call("os", "system", value)), "neither a checkpoint's format nor data alone")
    legacy = b"".join(
        formats.pickled(v) for v in (formats.LEGACY_MAGIC, formats.LEGACY_PROTOCOL, {"little_endian": True})
    )
    put("run_legacy", legacy + checkpoint(call("os", "system", value)) + formats.pickled([]), why, "os.system")
    put(
        "run_legacy_in_header",
        checkpoint(call("os", "system", value)) + legacy,
        "neither a checkpoint's format nor data alone",
    )
    put("run_legacy_in_keys", legacy + checkpoint(b"N") + checkpoint(call("os", "system", value)), why, "os.system")
    script = b"\x80\x02" + glob("__torch__", "Net") + b")\x81}" + text("weight") + call("os", "system", value) + b"sb."
    entries = {
        "archive/data.pkl": script,
        "archive/constants.pkl": b"\x80\x02).",
        "archive/code/__torch__.py": b"",
        "archive/version": b"3\n",
    }
    put("run_torchscript", formats.zipped(entries), why, "os.system")
    entries |= {
        "archive/data.pkl": b"\x80\x02" + glob("__torch__", "Net") + b")\x81}b.",
        "archive/constants.pkl": b"\x80\x02" + call("os", "system", value) + b".",
    }
    bound("run_torchscript_constants", formats.zipped(entries), "constants are not parameters, and need not be read")


def programs() -> None:
    """Opcode streams that no pickler writes."""
    bodies = {
        "nothing": b"",
        "only_stop": b".",
        "no_stop": b"\x80\x02}",
        "unknown_opcode": b"\x80\x02\xff.",
        "underflow_setitem": b"\x80\x02}s.",
        "underflow_append": b"\x80\x02]a.",
        "underflow_reduce": b"\x80\x02R.",
        "underflow_pop": b"\x80\x020.",
        "no_mark": b"\x80\x02}u.",
        "mark_left": b"\x80\x02}((.",
        "mark_as_value": b"\x80\x02(.",
        "odd_setitems": b"\x80\x02}(" + text("a") + b"u.",
        "append_to_dict": b"\x80\x02}Na.",
        "setitem_on_list": b"\x80\x02]NNs.",
        "setitem_on_text": b"\x80\x02" + text("x") + b"NNs.",
        "memo_missing": b"\x80\x02h\x07.",
        "memo_empty_stack": b"\x80\x02q\x00.",
        "key_is_list": b"\x80\x02}]Ns.",
        "key_is_dict": b"\x80\x02}}Ns.",
        "text_not_utf8": b"\x80\x02}X\x02\x00\x00\x00\xff\xfeNs.",
        "global_without_newline": b"\x80\x02cos",
        "int_is_text": b"\x80\x02Iabc\n.",
        "int_of_digits": b"\x80\x02I" + b"9" * 100_000 + b"\n.",
        "float_is_text": b"\x80\x02Fone\n.",
        "long_negative": b"\x80\x02\x8b\xff\xff\xff\xff.",
        "string_unquoted": b"\x80\x02Sabc\n.",
        "stack_global_numbers": b"\x80\x04K\x01K\x02\x93.",
        "buffer_out_of_band": b"\x80\x05\x97.",
        "build_on_number": b"\x80\x02K\x01}b.",
        "persistent_number": b"\x80\x02}" + text("w") + b"K\x01Qs.",
        "persistent_text": b"\x80\x02}" + text("w") + b"Pabc\ns.",
        "many_dups": b"\x80\x02" + b"N" + b"2" * 100_000 + b".",
    }
    for name, body in bodies.items():
        put(f"program_{name}", archive(body), "no valid pickle of a state dict")
    bound("program_protocol_200", archive(b"\x80\xc8}."), "a protocol to come")
    bound("program_cycle", archive(b"\x80\x02}q\x00" + text("self") + b"h\x00s."), "a dict that contains itself")
    bound(
        "program_cycle_in_list", archive(b"\x80\x02}" + text("self") + b"]q\x00h\x00as."), "a list that contains itself"
    )


def memory() -> None:
    """Small files that would like to be large, or deep."""
    deep = 200_000
    put("deep_lists", zipped_body(b"\x80\x02" + b"]" * deep + b"a" * (deep - 1) + b"."), "nested without end")
    put("deep_tuples", zipped_body(b"\x80\x02)" + b"\x85" * deep + b"."), "nested without end")
    put("deep_dicts", zipped_body(b"\x80\x02}" + b"K\x00}" * deep + b"s" * deep + b"."), "nested without end")
    put("deep_marks", zipped_body(b"\x80\x02" + b"(" * deep + b"l" * deep + b"."), "nested without end")
    bound(
        "deep_reduces",
        zipped_body(
            b"\x80\x02"
            + b"".join([glob("collections", "OrderedDict") + b"(" for _ in range(20_000)])
            + b"tR" * 20_000
            + b"."
        ),
        "nested without end",
    )
    bomb = b"\x80\x02" + b"]q\x00" + text("ha") + b"a0"
    for level in range(1, 60):
        bomb += b"(" + b"h" + bytes([level - 1]) + b"h" + bytes([level - 1]) + b"lq" + bytes([level]) + b"0"
    bound(
        "memo_bomb",
        archive(bomb + b"}" + text("data") + b"h\x3bs."),
        "two to the sixtieth elements, if they were spelled out",
    )
    tuples = b"\x80\x02N\x85q\x000" + b"".join(
        b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) + b"0" for i in range(60)
    )
    bound("memo_bomb_key", archive(tuples + b"}h\x3cNs."), "a key whose hash walks two to the sixtieth elements")
    bound(
        "memo_index_huge",
        archive(b"\x80\x02}r\xff\xff\xff\xff."),
        "a memo of four thousand million entries, if it were an array",
    )
    put("memo_index_text", archive(b"\x80\x02}p99999999999999999999\n."), "a memo index beyond any integer")
    sizes = {
        "unicode": b"X\xff\xff\xff\xff",
        "unicode8": b"\x8d" + struct.pack("<Q", 1 << 60),
        "bytes": b"B\xff\xff\xff\x7f",
        "bytes8": b"\x8e" + struct.pack("<Q", (1 << 64) - 1),
        "bytearray8": b"\x96" + struct.pack("<Q", 1 << 50),
        "long": b"\x8b\xff\xff\xff\x7f",
        "string": b"T\xff\xff\xff\x7f",
        "frame": b"\x95" + struct.pack("<Q", 1 << 60),
    }
    for name, opcode in sizes.items():
        put(f"size_of_{name}", archive(b"\x80\x05" + opcode + b"abc."), "a length beyond the file")


def arrays() -> None:
    """NumPy's arrays that lie."""
    ndarray = b"cnumpy\nndarray\n" + integer(0) + b"\x85" + b"C\x01b"
    made = call("numpy.core.multiarray", "_reconstruct", ndarray)
    kind = call("numpy", "dtype", text("f8"))

    def array(shape: bytes, content: bytes) -> bytes:
        return checkpoint(made + b"(" + integer(1) + shape + kind + b"\x89" + content + b"tb", protocol=3)

    eight = b"C\x08" + bytes(8)
    for name, body, because in (
        ("array_beyond_bytes", array(numbers(2), eight), "an array is longer than its bytes"),
        ("array_of_exabytes", array(numbers(1 << 40, 1 << 40), eight), "an array's size overflows"),
        ("array_negative", array(numbers(-1), eight), "a dim is negative"),
        ("array_of_text", array(numbers(1), text("12345678")), "an array is made of a text"),
        ("array_without_dtype", checkpoint(made + b"(" + integer(1) + numbers(1) + b"N\x89" + eight + b"tb"), "no dtype"),
        ("array_state_short", checkpoint(made + b"(" + integer(1) + b"tb"), "the state of an array has other parts"),
        ("scalar_short", checkpoint(call("numpy.core.multiarray", "scalar", kind, b"C\x04" + bytes(4))), "too few bytes"),
        ("dtype_of_number", checkpoint(call("numpy", "dtype", integer(8))), "a dtype without a name"),
    ):
        put(f"numpy_{name}", archive(body), because)


def tensors() -> None:
    """Tensors that do not fit their storages."""
    cases = {
        "storage_missing": (tensor(storage(key="9")), "a storage that is not in the file"),
        "storage_outside": (tensor(storage(key="../data.pkl")), "a storage's key that is a path"),
        "storage_short": (tensor(storage(count=100), size=(100,)), "a storage shorter than it says"),
        "storage_huge": (tensor(storage(count=1 << 60)), "a storage shorter than it says"),
        "storage_negative": (tensor(storage(count=-4)), "a negative count"),
        "storage_unknown": (tensor(storage("StringStorage")), "no such storage type"),
        "storage_is_text": (tensor(text("storage")), "a tensor of what is no storage"),
        "size_beyond": (tensor(size=(5,)), "a view beyond its storage"),
        "size_huge": (tensor(size=(1 << 62, 1 << 62), stride=(1, 1)), "an element count that overflows"),
        "size_negative": (tensor(size=(-1,)), "a negative dimension"),
        "size_is_text": (
            call("torch._utils", "_rebuild_tensor_v2", storage(), integer(0), text("4"), numbers(1), b"\x89", b"}"),
            "a size that is no tuple",
        ),
        "stride_beyond": (tensor(stride=(2,)), "a view beyond its storage"),
        "stride_overflows": (tensor(size=(2, 2), stride=(1 << 62, 1 << 62)), "an address that overflows"),
        "stride_negative": (tensor(offset=3, stride=(-1,)), "a negative stride"),
        "stride_count": (tensor(stride=(1, 1)), "strides unlike dimensions"),
        "offset_beyond": (tensor(offset=1), "a view beyond its storage"),
        "offset_negative": (tensor(offset=-1), "a negative offset"),
        "offset_huge": (tensor(offset=1 << 62), "a view beyond its storage"),
        "arguments_few": (call("torch._utils", "_rebuild_tensor_v2", storage()), "arguments that are missing"),
        "arguments_none": (call("torch._utils", "_rebuild_tensor_v2"), "arguments that are missing"),
        "dtype_unknown": (
            call(
                "torch._utils",
                "_rebuild_tensor_v3",
                storage("UntypedStorage", count=16, module="torch.storage"),
                integer(0),
                numbers(4),
                numbers(1),
                b"\x89",
                b"}",
                glob("torch", "float31"),
            ),
            "no such dtype",
        ),
        "parameter_of_text": (
            call("torch._utils", "_rebuild_parameter", text("w"), b"\x88", b"}"),
            "a parameter that is no tensor",
        ),
    }
    for name, (value, because) in cases.items():
        put(f"tensor_{name}", archive(checkpoint(value), _0=FOUR), because, "weight")
    bound(
        "tensor_expanded_huge",
        archive(checkpoint(tensor(size=(1 << 40,), stride=(0,))), _0=FOUR),
        "one element repeated into terabytes",
    )
    bound(
        "tensor_rank_huge",
        archive(checkpoint(tensor(size=(1,) * 5000, stride=(1,) * 5000)), _0=FOUR),
        "five thousand dimensions",
    )
    many = (
        b"\x80\x02}" + b"".join(text(f"w{i}") + tensor(size=(1000, 4), stride=(0, 1)) + b"s" for i in range(500)) + b"."
    )
    # Lazily it costs nothing; spelled out it is a thousand times the file.
    store.write("many_expanded.pt", zipped_body(many, {"archive/data/0": FOUR}))
    store.write_json(
        "many_expanded.expected.json",
        {
            "tensors": {f"w{i}": {"dtype": "f32", "shape": [1000, 4]} for i in range(500)},
            "without_elements": "they would be a thousand times the file",
        },
    )
