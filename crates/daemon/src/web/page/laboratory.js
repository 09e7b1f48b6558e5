// The policy laboratory: checks a policy while it is typed, simulates it beside the present one, starts it on the
// daemon whose page this is, and takes it back. Without a daemon it checks and simulates.
import { courseChart } from "./charts.js";
import { Table, element, setText } from "./tables.js";

const TYPING_MS = 200;
/** A simulation that takes longer is ended: its policy uses all its instructions in each of many calls. */
const LONGEST_MS = 60000;
const WATCH_MS = 1000;
const MOST_DECISIONS = 20;
const ABSENT = "This build has no laboratory. «make laboratory», then a new build of the daemon, adds it.";
const EXAMPLE = `// A viewer that gets less than it is sent has a narrow link: ask for less, and try more after four good reports.
struct input { long value, host; };
struct output { long rate_milli; };
static long hosts[8], rates[8], good[8];
int place = 0;

while (place < 7 && hosts[place] != 0 && hosts[place] != input.host) place++;
if (hosts[place] != input.host) {
    hosts[place] = input.host;
    rates[place] = 25000;
}
if (input.value < rates[place] * 9 / 10) {
    rates[place] = input.value * 9 / 10;
    if (rates[place] < 5000) rates[place] = 5000;
    good[place] = 0;
} else {
    good[place]++;
    if (good[place] > 3 && rates[place] < 25000) {
        rates[place] = rates[place] * 5 / 4;
        good[place] = 0;
    }
}
output.rate_milli = rates[place];
return 1;
`;

const at = (id) => document.getElementById(id);
const token = sessionStorage.getItem("qfabric-token");

// ---- the worker ------------------------------------------------------------------------------------------------

let worker = null;
let calls = 0;
const waiting = new Map();

function begin() {
  worker = new Worker("laboratory-worker.js");
  worker.onmessage = ({ data: { id, answer, failure } }) => {
    const { done, failed } = waiting.get(id) ?? {};
    waiting.delete(id);
    if (failure === undefined) done?.(JSON.parse(answer));
    else failed?.(new Error(failure === "absent" ? ABSENT : failure));
    // A trap leaves the memory of the module as it was in the middle of a call.
    if (failure !== undefined && failure !== "absent") restart(failure);
  };
}

function restart(why) {
  worker.terminate();
  for (const { failed } of waiting.values()) failed(new Error(why));
  waiting.clear();
  begin();
}

function ask(call, request) {
  return new Promise((done, failed) => {
    calls += 1;
    waiting.set(calls, { done, failed });
    worker.postMessage({ id: calls, call, request: JSON.stringify(request) });
  });
}

// ---- the text --------------------------------------------------------------------------------------------------

/** The policy of the fields, without its kind. */
function policy() {
  const attributes = at("attributes").value.split(/\s+/).filter((name) => name !== "");
  const silence = Number(at("silence").value);
  return { channel: at("channel").value, code: at("code").value, attributes, ...(silence ? { silence_ns: silence * 1e6 } : {}) };
}

let typing = 0;

async function check() {
  const [text, mine] = [at("code").value, ++typing];
  const answer = await ask("check", policy()).catch((error) => ({ error: error.message }));
  if (mine !== typing) return;
  const findings = answer.findings ?? [];
  const errors = findings.filter((finding) => finding.level === "error").length;
  const accepted = `The compiler accepts the text; warnings: ${findings.length}`;
  const said = answer.valid ? accepted : `Errors: ${errors}`;
  setText(at("verdict"), answer.error ?? said);
  at("findings").replaceChildren(...findings.map((finding) => element("li", { className: finding.level }, found(finding, text))));
  at("simulate").disabled = !answer.valid;
  at("start").disabled = !answer.valid || token === null;
}

/** A finding; if it has a place, a button that selects it. */
function found({ level, message, range }, text) {
  const words = `${level}: ${message}`;
  if (!range) return words;
  const select = () => {
    if (at("code").value !== text) return;
    at("code").focus();
    at("code").setSelectionRange(...range);
  };
  return element("button", { type: "button", onclick: select }, words);
}

function typed() {
  sessionStorage.setItem("qfabric-policy", at("code").value);
  at("simulate").disabled = at("start").disabled = true;
  typing += 1;
  clearTimeout(typed.timer);
  typed.timer = setTimeout(check, TYPING_MS);
}

// ---- the simulation --------------------------------------------------------------------------------------------

const results = new Table(at("results"), "Events per second, in the mean", [
  ["viewer", ""], ["wanted", ""], ["policy", ""], ["before", "number"], ["link narrow", "number"], ["after", "number"], ["arrived", "number"],
], "none yet");
const VIEWERS = ["low", "medium", "high"];
/** The camera makes 25 events per second; a queue that drains may deliver more. */
const MOST_RATE = 30;
const charts = ["present", "text"].map((id) => courseChart(at(`chart-${id}`), VIEWERS, MOST_RATE, (rate) => `${+rate.toFixed(1)}/s`));

/** The policy to compare with: none, a built-in one, or one that runs. */
function present() {
  const choice = at("present").value;
  if (choice === "") return null;
  return running.find((one) => one.name === choice)?.policy ?? { kind: "roles", channel: "film" };
}

async function simulate() {
  at("simulate").disabled = true;
  setText(at("simulation"), "Simulating two minutes");
  const longest = setTimeout(() => restart(`no result after ${LONGEST_MS / 1000} s; the text was ended`), LONGEST_MS);
  const scenario = at("scenario").value;
  try {
    const outcomes = [];
    for (const one of [present(), { kind: "code", ...policy() }]) {
      const outcome = await ask("simulate", { scenario, policy: one });
      if (outcome.error) throw new Error(outcome.error);
      outcomes.push(outcome);
    }
    show(outcomes);
  } catch (error) {
    setText(at("simulation"), error.message);
  }
  clearTimeout(longest);
  check();
}

function show(outcomes) {
  const titles = [at("present").selectedOptions[0].textContent, "the text"];
  setText(at("present-title"), titles[0]);
  const counts = outcomes.map(({ lost, decisions, faults }, index) => `${titles[index]}: ${lost} events lost, ${decisions} decisions, ${faults} faults`);
  setText(at("simulation"), counts.join(". "));
  const row = (number) => (viewer, index) => ({
    key: `${viewer.viewer}-${number}`,
    cells: [viewer.viewer, `${viewer.min} to ${viewer.max}`, titles[number], ...[viewer.before, viewer.narrow, viewer.after].map((rate) => rate.toFixed(1)), `${viewer.arrived}`],
    order: index * 2 + number,
  });
  results.update(outcomes.flatMap((outcome, number) => outcome.viewers.map(row(number))).sort((a, b) => a.order - b.order));
  outcomes.forEach((outcome, index) => charts[index].show(lines(outcome.curves), `${titles[index]}: events per second at each viewer over two minutes`));
}

/** The curves on common seconds. The last point of each half second counts. */
function lines(curves) {
  const x = Array.from({ length: 241 }, (_, half) => half / 2);
  const line = ({ points }) => {
    const by = new Map(points.map(([second, rate]) => [Math.round(second * 2), rate]));
    return x.map((second) => by.get(second * 2) ?? null);
  };
  return [x, ...curves.map(line)];
}

// ---- the live system -------------------------------------------------------------------------------------------

/** The policies of the channel that run now. */
let running = [];
const decisions = new Table(at("decisions"), "Decisions, the newest first", [["decision", ""], ["cause", "text"]], "none yet");

async function api(method, path, body) {
  const headers = { Authorization: `Bearer ${token}`, ...(body ? { "Content-Type": "application/json" } : {}) };
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store", signal: AbortSignal.timeout(5000) });
  const answer = response.status === 204 ? null : await response.json();
  if (!response.ok) throw new Error(`${answer.message}; ${answer.next_step}`);
  return answer;
}

const path = (name) => `/v1/policies/${encodeURIComponent(name)}`;
const nameOf = () => `code.${at("channel").value}`;

/** What the text has replaced on this daemon, by which it is taken back: { name, stopped }; null: it was not started. */
const former = () => JSON.parse(sessionStorage.getItem("qfabric-former") ?? "null");

/** Stops these policies and starts others. If this fails, the first ones run again. */
async function replace(stopped, started) {
  const done = [];
  try {
    for (const one of stopped) {
      await api("DELETE", path(one.name));
      done.push(one);
    }
    for (const one of started) await api("POST", "/v1/policies", one);
  } catch (error) {
    for (const one of done) await api("POST", "/v1/policies", one);
    throw error;
  }
}

async function act(change) {
  at("start").disabled = at("back").disabled = true;
  setText(at("refused"), "");
  try {
    await change();
    await watch();
  } catch (error) {
    setText(at("refused"), error.message);
  }
  at("back").disabled = former() === null;
  check();
}

/** The policies that run, with their names, which the daemon gave to those that were started without one. */
async function policies() {
  return (await api("GET", "/v1/policies")).map((one) => ({ ...one, policy: { ...one.policy, name: one.name } }));
}

const start = () => act(async () => {
  const [name, choice] = [nameOf(), at("present").value];
  const stopped = (await policies()).filter((one) => one.name === name || one.name === choice).map((one) => one.policy);
  await replace(stopped, [{ kind: "code", name, ...policy() }]);
  // Several versions of the text in turn: back is what ran before the first of them.
  const known = former();
  const before = known?.name === name ? [...known.stopped, ...stopped.filter((one) => one.name !== name)] : stopped;
  sessionStorage.setItem("qfabric-former", JSON.stringify({ name, stopped: before }));
});

const back = () => act(async () => {
  const { name, stopped } = former();
  await replace((await policies()).filter((one) => one.name === name).map((one) => one.policy), stopped);
  sessionStorage.removeItem("qfabric-former");
});

async function watch() {
  const name = nameOf();
  running = (await policies()).filter((one) => one.policy.channel === at("channel").value);
  choices();
  const own = running.find((one) => one.name === name);
  const counts = own && `${name} runs: ${own.calls} calls, ${own.decisions} decisions, ${own.faults} faults${own.fault ? `, the last one: ${own.fault}` : ""}`;
  setText(at("live"), counts ?? `No policy ${name} runs`);
  const why = own ? await api("GET", `${path(name)}/why`).catch(() => []) : [];
  decisions.update(why.slice(-MOST_DECISIONS).reverse().map((one, index) => ({ key: `${index}`, cells: [one.decision, one.cause] })));
}

/** Offers the policies that run for comparison. */
function choices() {
  const [list, names] = [at("present"), running.map((one) => one.name)];
  for (const option of [...list.options].slice(2)) if (!names.includes(option.value)) option.remove();
  const known = [...list.options].map((option) => option.value);
  for (const name of names) if (!known.includes(name)) list.append(element("option", { value: name }, `${name}, which runs`));
}

async function keepWatching() {
  if (!document.hidden) await watch().catch((error) => setText(at("live"), error.message));
  setTimeout(keepWatching, WATCH_MS);
}

// ---- the beginning ---------------------------------------------------------------------------------------------

at("code").value = sessionStorage.getItem("qfabric-policy") ?? EXAMPLE;
for (const id of ["code", "channel", "attributes", "silence"]) at(id).addEventListener("input", typed);
at("simulate").addEventListener("click", simulate);
at("start").addEventListener("click", start);
at("back").addEventListener("click", back);
begin();
// An empty request is answered as soon as the module is loaded.
ask("check", null).then(() => {
  setText(at("state"), "Ready");
  simulate();
}, (error) => {
  setText(at("state"), error.message);
  at("state").classList.add("trouble");
});
if (token !== null) {
  at("live-link").hidden = false;
  at("back").disabled = former() === null;
  keepWatching();
}
