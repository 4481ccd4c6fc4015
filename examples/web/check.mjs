// Tries the page in Chromium, headless, on both backends: draws every digit of `tests/strokes.json` and reads the answers.
//
//     node check.mjs PAGE_FOLDER CHROMIUM SHADERS
//
// Then the browser's compiler is given every shader in the file SHADERS, which are separated by zeros. `playwright-core` is taken from
// the folder in NODE_PATH.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";

const [folder, executablePath, shaders] = process.argv.slice(2);
const { chromium } = createRequire(join(process.env.NODE_PATH, "playwright-core/"))("playwright-core");
const strokes = JSON.parse(await readFile(new URL("tests/strokes.json", import.meta.url)));

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm" };
const server = createServer(async (request, response) => {
  const path = normalize(new URL(request.url, "http://localhost").pathname);
  try {
    const body = await readFile(join(folder, path));
    response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" }).end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const address = `http://127.0.0.1:${server.address().port}/index.html`;

// SwiftShader computes WebGPU on the CPU where there is no GPU.
const args = ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];
const browser = await chromium.launch({ executablePath, headless: true, args });
const problems = [];
const answers = {};

async function draw(page, digit) {
  await page.click("#clear");
  const box = await page.locator("#canvas").boundingBox();
  const place = ([x, y]) => [box.x + (x / 100) * box.width, box.y + (y / 100) * box.height];
  for (const stroke of strokes[digit]) {
    await page.mouse.move(...place(stroke[0]));
    await page.mouse.down();
    for (const point of stroke.slice(1)) await page.mouse.move(...place(point));
    await page.mouse.up();
  }
  await page.evaluate(() => window.settled());
  const { answer, milliseconds, state } = await page.evaluate(() => ({ ...document.body.dataset }));
  if (state !== "ready") throw new Error(await page.textContent("#status"));
  return [JSON.parse(answer), Number(milliseconds)];
}

async function check(backend, query, expectedName) {
  const page = await browser.newPage();
  page.on("pageerror", (error) => problems.push(`${backend}: ${error}`));
  page.on("console", (message) => message.type() === "error" && problems.push(`${backend}: ${message.text()}`));
  await page.goto(address + query);
  await page.waitForFunction(() => document.body.dataset.state, null, { timeout: 120_000 });
  const loaded = await page.textContent("#status");
  if (!loaded.startsWith(expectedName)) {
    problems.push(`${backend}: not ready on ${expectedName}: ${loaded}`);
    return;
  }
  const times = [];
  answers[backend] = {};
  for (const digit of Object.keys(strokes)) {
    const [probabilities, milliseconds] = await draw(page, digit);
    const best = probabilities.indexOf(Math.max(...probabilities));
    if (best !== Number(digit)) problems.push(`${backend}: a drawn ${digit} is taken for a ${best}`);
    answers[backend][digit] = probabilities;
    times.push(milliseconds);
  }
  const shown = await page.textContent("#status");
  if (!/: \d+\.\d\d ms$/.test(shown)) problems.push(`${backend}: no milliseconds in "${shown}"`);
  times.sort((a, b) => a - b);
  console.log(`${loaded}; ${times.length} digits read, median ${times[times.length >> 1].toFixed(2)} ms`);
  await page.close();
}

/** Compiles shaders; those in f16 only where the adapter has it. */
async function compile(sources) {
  const page = await browser.newPage();
  await page.goto(address + "?backend=ndarray");
  const found = await page.evaluate(async (sources) => {
    const adapter = await navigator.gpu.requestAdapter();
    const requiredFeatures = adapter.features.has("shader-f16") ? ["shader-f16"] : [];
    const device = await adapter.requestDevice({ requiredFeatures });
    device.addEventListener("uncapturederror", (event) => event.preventDefault());
    const served = sources.filter((code) => requiredFeatures.length || !code.startsWith("enable f16"));
    const problems = [];
    for (const code of served) {
      const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
      const error = messages.find((message) => message.type === "error");
      if (error) problems.push(`${error.message}: ${code.split("\n")[error.lineNum - 1]}`);
    }
    return { count: served.length, problems };
  }, sources);
  console.log(`${found.count} of ${sources.length} shaders compiled by the browser`);
  problems.push(...found.problems);
}

try {
  await check("webgpu", "?backend=webgpu", "wgpu");
  await check("ndarray", "?backend=ndarray", "ndarray");
  // Without a wish the page takes the GPU that there is.
  await check("default", "", "wgpu");
  for (const [digit, expected] of Object.entries(answers.ndarray ?? {})) {
    const apart = Math.max(...expected.map((p, n) => Math.abs(p - (answers.webgpu?.[digit]?.[n] ?? NaN))));
    if (!(apart < 1e-4)) problems.push(`the backends' answers to a drawn ${digit} are ${apart} apart`);
  }
  await compile((await readFile(shaders, "utf8")).split("\0"));
} catch (error) {
  problems.push(`${error.stack}`);
} finally {
  await browser.close();
  server.close();
}
if (problems.length) {
  console.error(problems.join("\n"));
  process.exit(1);
}
