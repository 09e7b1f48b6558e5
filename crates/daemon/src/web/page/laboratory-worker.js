// Runs the compiler and the simulation beside the page, so that the page can end a call that takes too long.
// A message { id, call: "check" | "simulate", request } is answered by { id, answer }, and a failure by { id, failure }.
const texts = { to: new TextEncoder(), from: new TextDecoder() };
const loaded = load();

async function load() {
  const response = await fetch("laboratory.wasm");
  if (!response.ok) throw new Error("absent");
  return (await WebAssembly.instantiate(await response.arrayBuffer())).instance.exports;
}

addEventListener("message", async ({ data: { id, call, request } }) => {
  try {
    const laboratory = await loaded;
    const bytes = texts.to.encode(request);
    const at = laboratory.request(bytes.length);
    if (at === 0) throw new Error("the request is too long");
    new Uint8Array(laboratory.memory.buffer).set(bytes, at);
    const length = laboratory[`run_${call}`]();
    const answer = new Uint8Array(laboratory.memory.buffer, laboratory.answer_at(), length);
    postMessage({ id, answer: texts.from.decode(answer) });
  } catch (error) {
    postMessage({ id, failure: error.message });
  }
});
