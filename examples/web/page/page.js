// The page: loads the network, shows what is drawn and what the network takes it for.
//
// `?backend=webgpu` and `?backend=ndarray` ask for a backend; without, it is the GPU where the browser has WebGPU.

const canvas = document.getElementById("canvas");
const context = canvas.getContext("2d");
const status = document.getElementById("status");
const answers = document.getElementById("answers");

for (let digit = 0; digit < 10; digit++) {
  const row = answers.appendChild(document.createElement("li"));
  row.innerHTML = `${digit} <meter max="1"></meter> <span></span>`;
}

/** The module for a backend: the one for the CPU alone is smaller. */
async function load(backend) {
  const module = await import(`./${backend}/web.js`);
  await module.default();
  return module;
}

async function open() {
  const asked = new URLSearchParams(location.search).get("backend");
  if (asked !== "ndarray" && navigator.gpu) {
    try {
      const module = await load("webgpu");
      return [module, await module.Classifier.on_gpu()];
    } catch (error) {
      if (asked) throw error;
      console.warn(`no GPU: ${error}`);
    }
  } else if (asked === "webgpu") {
    throw new Error("this browser has no WebGPU");
  }
  const module = await load("ndarray");
  return [module, module.Classifier.on_cpu()];
}

let module, classifier, drawing;
/** Ends when all that was drawn so far is answered. */
let answered = Promise.resolve();

function clear() {
  drawing?.free();
  drawing = new module.Drawing();
  context.clearRect(0, 0, canvas.width, canvas.height);
  show(new Float32Array(10));
}

function show(probabilities) {
  const best = probabilities.indexOf(Math.max(...probabilities));
  [...answers.children].forEach((row, digit) => {
    const probability = probabilities[digit];
    row.querySelector("meter").value = probability;
    row.querySelector("span").textContent = `${(100 * probability).toFixed(1)} %`;
    row.classList.toggle("best", probability > 0 && digit === best);
  });
}

async function answer() {
  const pixels = drawing.pixels();
  const start = performance.now();
  const probabilities = await classifier.probabilities(pixels);
  const milliseconds = performance.now() - start;
  show(probabilities);
  status.textContent = `${classifier.backend()}: ${milliseconds.toFixed(2)} ms`;
  Object.assign(document.body.dataset, { answer: JSON.stringify([...probabilities]), milliseconds });
}

/** One answer after another, the last for what is drawn then. */
function ask() {
  answered = answered.then(answer).catch(fail);
}

function fail(error) {
  status.textContent = `${error.message ?? error}`;
  document.body.dataset.state = "failed";
}

function point(event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function line(event) {
  const [x, y] = point(event);
  drawing.draw_to(x, y);
  context.lineTo(x, y);
  context.stroke();
}

try {
  const start = performance.now();
  [module, classifier] = await open();
  Object.assign(context, { strokeStyle: "#fff", lineWidth: 16, lineCap: "round", lineJoin: "round" });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    const [x, y] = point(event);
    drawing.press(x, y);
    context.beginPath();
    context.moveTo(x, y);
    line(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons & 1) line(event);
  });
  canvas.addEventListener("pointerup", ask);
  document.getElementById("clear").addEventListener("click", clear);
  clear();
  // The first run compiles kernels.
  ask();
  await answered;
  show(new Float32Array(10));
  if (document.body.dataset.state !== "failed") {
    status.textContent = `${classifier.backend()}: loaded in ${(performance.now() - start).toFixed(0)} ms`;
    document.body.dataset.state = "ready";
  }
  // For scripts: resolves when all that was drawn so far is answered.
  window.settled = () => answered;
} catch (error) {
  fail(error);
}
