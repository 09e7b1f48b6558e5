// The web page of the daemon: reads the API as the user of its token, four times in a second, and shows it.
import { SPAN, classes, histogram, timeChart } from "./charts.js";
import { Table, bytes, duration, percent, rate, setText } from "./tables.js";

const PAUSE_MS = 250;
const TROUBLE_MS = 2000;
/** Readings of the state that are kept: one minute. */
const SAMPLES = (SPAN * 1000) / PAUSE_MS;
/** Jobs of each application that are kept. */
const MOST_JOBS = 4000;
/** Pages of new records in one reading; the next reading goes on. */
const MOST_PAGES = 4;
/** Records that the daemon gives in one answer, at most. */
const RECORDS_OF_A_PAGE = 1024;
/** Time without an answer after which the page says what may have happened. */
const LOST_MS = 10000;
const MOST_EVENTS = 100;
/** Rows out of sight that each reading fills: readers of the whole text find values that are at most a few seconds old. */
const FAR_ROWS = 16;
/** Policies whose last decision is shown. */
const MOST_REASONS = 8;
const NS = 1e9;

const at = (id) => document.getElementById(id);

// ---- the token: from the address, then only in this tab --------------------------------------------------------

function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("qfabric-token", given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("qfabric-token");
}

// ---- requests --------------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, problem) {
    super(problem?.message ?? `HTTP ${status}`);
    this.status = status;
    this.next = problem?.next_step ?? "";
    this.code = problem?.code ?? "";
  }
}

/** The last answer of each path, by which only changes are asked for. */
const answers = new Map();
let pageVersion = null;

async function get(path, keep = true) {
  const last = answers.get(path);
  const headers = { Authorization: `Bearer ${token}` };
  if (keep && last) headers["If-None-Match"] = last.tag;
  const response = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(5000) });
  checkVersion(response.headers.get("qfabric-version"));
  if (response.status === 304) return last.body;
  const body = await response.json();
  if (!response.ok) throw new Refused(response.status, body);
  if (keep) answers.set(path, { tag: response.headers.get("etag"), body });
  return body;
}

/** A page of another version could misread the data: it says so and loads the page of the running daemon. */
function checkVersion(version) {
  pageVersion ??= version;
  setText(at("version"), pageVersion ?? "");
  if (version === null || version === pageVersion) return;
  banner(`The daemon has version ${version} now, this page has version ${pageVersion}. The page is loaded again.`);
  stopped = true;
  setTimeout(() => location.reload(), 1500);
}

function banner(text) {
  setText(at("banner"), text);
  at("banner").hidden = text === "";
}

function say(text, trouble = false) {
  setText(at("state"), text);
  at("state").classList.toggle("trouble", trouble);
}

// ---- what is remembered of the last minute ---------------------------------------------------------------------

/** Readings of the state: time in seconds of the daemon's clock, host values, and the few values of each application that
 * charts show, by its number. Whole states of a minute would be a hundred megabytes with 200 applications. */
const samples = [];
/** The applications of the last reading, by number. */
let present = new Map();
/** Ended jobs by application, the oldest first: their time, error in periods, and share. */
const jobs = new Map();
/** From this time on the page has every record, in seconds of the daemon's clock. */
let completeSince = 0;
/** The oldest first. */
let events = [];
let madeEvents = 0;
const names = new Map();
/** The number after the newest record of the timeline that was read; null before the first reading. */
let next = null;
/** The number down to which older records were read; null if no older ones are needed. */
let reached = null;
/** The daemon's clock minus the browser's, in seconds. */
let clockOffset = null;
let selected = null;

const now = () => performance.now() / 1000 + clockOffset;

/** Reads the new records and, until the last minute is complete, a page of older ones. The first view has none: a busy
 * daemon keeps five megabytes of them. */
async function readTimeline() {
  if (next === null) return beginTimeline();
  for (let more = true, pages = 0; more && pages < MOST_PAGES; pages += 1) {
    const page = await readPage(`from=${next}`);
    if (page.lost > 0) [completeSince, reached] = [(page.records[0]?.at_ns ?? page.now_ns) / NS, null];
    ({ next, more } = page);
    const { ended, told } = sorted(page.records);
    for (const [app, own] of ended) jobs.set(app, (jobs.get(app) ?? []).concat(own));
    events.push(...told);
  }
  if (reached !== null) await readOlder();
  forgetOld();
}

/** Learns the daemon's clock and the number after its last record. */
async function beginTimeline() {
  const page = await readPage(`from=${Number.MAX_SAFE_INTEGER}`);
  [next, reached, completeSince] = [page.next, page.next, page.now_ns / NS];
}

async function readOlder() {
  const from = Math.max(0, reached - RECORDS_OF_A_PAGE);
  const page = await readPage(`from=${from}&before=${reached}`);
  const { ended, told } = sorted(page.records);
  for (const [app, own] of ended) jobs.set(app, own.concat(jobs.get(app) ?? []));
  events.unshift(...told);
  const isAll = from === 0 || page.records.length === 0 || page.lost > 0;
  completeSince = Math.min(completeSince, (isAll ? page.complete_since_ns : page.records[0].at_ns) / NS);
  reached = isAll || completeSince < now() - SPAN ? null : from;
}

async function readPage(query) {
  const page = await get(`/v1/timeline?${query}`, false);
  clockOffset = page.now_ns / NS - performance.now() / 1000;
  page.applications.forEach((app) => names.set(app.id, app.name));
  return page;
}

/** The ended jobs of these records by application, and the events. */
function sorted(records) {
  const [ended, told] = [new Map(), []];
  for (const record of records) {
    if (record.kind === "job") {
      const period = record.deadline_ns - record.release_ns;
      if (!ended.has(record.app)) ended.set(record.app, []);
      ended.get(record.app).push({ at: record.at_ns / NS, error: record.error_ns / period, share: record.cost_ns / period });
    } else if (record.kind !== "budget") {
      told.push({ key: (madeEvents += 1), record });
    }
  }
  return { ended, told };
}

function forgetOld() {
  const oldest = now() - SPAN;
  for (const [app, own] of jobs) {
    const kept = own.findIndex((job) => job.at >= oldest);
    if (kept < 0) jobs.delete(app);
    else own.splice(0, Math.max(kept, own.length - MOST_JOBS));
  }
  events = events.slice(-MOST_EVENTS);
}

function sample(status) {
  present = new Map(status.applications.map((app) => [app.id, app]));
  const apps = new Map(status.applications.map(({ id, granted, wanted, used, quality }) =>
    [id, { granted, wanted, used, jobs: quality.jobs, misses: quality.misses ?? 0 }]));
  samples.push({ at: now(), granted: status.granted, guaranteed: status.guaranteed, capacity: status.capacity, apps });
  while (samples.length > SAMPLES) samples.shift();
}

// ---- frames ----------------------------------------------------------------------------------------------------

/** Pieces of work by name, in the order in which they came. */
const waiting = new Map();
let isAwaited = false;

/** Does `work` in one of the next frames, instead of older work of this name. A frame does one piece: all pieces of a
 * reading together would take longer than a frame has. */
function inFrame(name, work) {
  waiting.set(name, work);
  if (!isAwaited) requestAnimationFrame(doPiece);
  isAwaited = true;
}

function doPiece() {
  const [name, work] = waiting.entries().next().value;
  waiting.delete(name);
  isAwaited = waiting.size > 0;
  if (isAwaited) requestAnimationFrame(doPiece);
  work();
}

// ---- the sections ----------------------------------------------------------------------------------------------

const tables = {
  applications: new Table(at("applications"), "Applications under contract",
    [["name", ""], ["id", "number"], ["user", "number"], ["class", ""], ["period", "number"], ["guaranteed", "number"], ["wanted", "number"],
      ["granted", "number"], ["used", "number"], ["jobs", "number"], ["missed", "number"], ["in target", "number"]],
    "none; start one with qfabric run -- PROGRAM", FAR_ROWS),
  promises: new Table(at("promises"), "Memory",
    [["holder", ""], ["promised", "number"], ["used", "number"]], "none is promised"),
  links: new Table(at("links"), "Interfaces under packet scheduling",
    [["interface", ""], ["mechanism", ""], ["rate", "number"], ["promised", "number"], ["streams", "number"]], "none"),
  hosts: new Table(at("hosts"), "Hosts of the realm", [["host", ""], ["channels", "number"], ["registrations", "number"]], "none"),
  channels: new Table(at("channels"), "Channels",
    [["channel", ""], ["creator", ""], ["hosts", "text"], ["sources", "number"], ["sinks", "number"], ["filters", "number"]], "none"),
  members: new Table(at("members"), "Members",
    [["member", ""], ["channel", ""], ["host", ""], ["application", ""], ["events", "number"], ["dropped", "number"], ["late", "number"]], "none"),
  policies: new Table(at("policies"), "Policies that run",
    [["policy", ""], ["decisions", "number"], ["last decision", "text"], ["cause", "text"]], "none; start one with qfabric policy start"),
  energy: new Table(at("energy"), "Devices",
    [["device", ""], ["source", ""], ["energy", "number"], ["power", "number"]], "none"),
  energyApplications: new Table(at("energy-applications"), "Applications",
    [["name", ""], ["id", "number"], ["source", ""], ["energy", "number"]], "none"),
  events: new Table(at("events"), "Last events, the newest first", [["ago", "number"], ["application", ""], ["event", "text"]], "none yet", FAR_ROWS),
};

let charts = null;
/** The charts of an application, made when the first one is chosen: until then they would only delay the first view. */
let detail = null;

function makeCharts() {
  charts = { host: timeChart(at("chart-host"), ["granted", "guaranteed", "capacity"], (cpus) => `${+cpus.toFixed(3)} CPU`) };
}

function makeDetail() {
  return {
    budget: timeChart(at("chart-budget"), ["granted", "wanted", "used by jobs"], (cpus) => percent(cpus)),
    misses: timeChart(at("chart-misses"), ["missed", "jobs"], (count) => `${+count.toFixed(1)}`, true),
    errors: histogram(at("chart-errors"), "jobs by error; right of 0: late"),
  };
}

function showStatus(status) {
  const fallback = status.fallback ? `; ${status.fallback}` : "";
  setText(at("headline"), `Mechanism ${status.mechanism}: ${percent(status.granted)} granted, ${percent(status.guaranteed)} guaranteed, ` +
    `of ${percent(status.capacity)} that may be promised${fallback}`);
  tables.applications.update(status.applications.map(applicationRow));
}

function showMemory(status) {
  const memory = status.applications.filter((app) => app.memory).map((app) =>
    ({ key: app.id, cells: [app.contract.name, bytes(app.memory.promised_bytes), bytes(app.memory.used_bytes)] }));
  const total = status.memory ? [{ key: "host", cells: ["host", bytes(status.memory.promised_bytes), bytes(status.memory.used_bytes)] }] : [];
  tables.promises.update([...total, ...memory]);
}

function applicationRow(app) {
  const counted = app.quality.jobs > 0 && app.contract.jobs !== "consumption";
  const ofJobs = (part) => (counted && Number.isFinite(part) ? percent(part) : "–");
  const { contract, quality } = app;
  return {
    key: app.id,
    cells: [contract.name || `application ${app.id}`, `${app.id}`, `${app.owner.uid}`, contract.class, duration(contract.period_ns),
      percent(app.guaranteed), percent(app.wanted), percent(app.granted), percent(app.used), `${quality.jobs}`,
      ofJobs(quality.misses / quality.jobs), ofJobs(quality.in_target)],
    alert: app.overload !== undefined || (counted && quality.misses * 100 > quality.jobs),
    press: () => select(selected === app.id ? null : app.id),
    pressed: selected === app.id,
  };
}

function select(id) {
  selected = id;
  at("detail").hidden = id === null;
  draw();
}

function showChannels(channels) {
  tables.channels.update(channels.map((channel) => ({
    key: `${channel.plane}:${channel.name}`,
    cells: [channel.name, channel.creator, channel.hosts.map((holding) => holding.host).join(", "),
      `${sum(channel.hosts, (holding) => holding.sources.length)}`, `${sum(channel.hosts, (holding) => holding.sinks.length)}`,
      `${channel.filters?.length ?? 0}`],
  })));
  tables.members.update(channels.flatMap((channel) => channel.hosts.flatMap((holding) => [
    ...holding.sources.map((source) => member("source", channel, holding, source, source.counts?.submitted)),
    ...holding.sinks.map((sink) => member("sink", channel, holding, sink, sink.counts?.delivered)),
  ])));
}

function member(kind, channel, holding, info, count) {
  const shown = (value) => (value === undefined ? "–" : `${value}`);
  return {
    key: `${kind}-${channel.plane}:${channel.name}-${holding.host}-${info.number}`,
    cells: [`${kind} ${info.number}`, channel.name, holding.host, info.application ?? "–", shown(count), shown(info.counts?.dropped), shown(info.counts?.late)],
    alert: (info.counts?.dropped ?? 0) + (info.counts?.late ?? 0) > 0,
  };
}

async function showPolicies(policies) {
  const reasons = await Promise.all(policies.map(async (policy, index) => {
    const why = index < MOST_REASONS ? await get(`/v1/policies/${encodeURIComponent(policy.name)}/why`).catch(() => []) : [];
    return why.at(-1);
  }));
  tables.policies.update(policies.map((policy, index) => ({
    key: policy.name,
    cells: [policy.name, `${policy.decisions}`, reasons[index]?.decision ?? policy.fault ?? "–", reasons[index]?.cause ?? "–"],
    alert: policy.failed || policy.fault !== undefined,
  })));
}

function showEnergy(energy) {
  setText(at("energy-text"), `Power model ${energy.model.name}. Amounts of different sources have no sum.`);
  tables.energy.update(energy.devices.map((device) => ({
    key: device.name,
    cells: [device.name, device.source, joules(device), device.power_w === undefined ? "–" : `${device.power_w.toFixed(2)} W`],
    alert: device.fault !== undefined,
  })));
  tables.energyApplications.update(energy.applications.flatMap((app) => app.energy.map((amount) => (
    { key: `${app.app}-${amount.source}`, cells: [app.name, `${app.app}`, amount.source, joules(amount)] }))));
}

const joules = (amount) => `${amount.joules.toFixed(1)} J`;
const sum = (list, value) => list.reduce((total, one) => total + value(one), 0);

function showNet(interfaces) {
  tables.links.update(interfaces.map((one) => ({
    key: one.interface,
    cells: [one.interface, one.mechanism, rate(one.rate_bps), one.link ? rate(one.link.promised_bps) : percent(one.utilization), `${one.streams.length}`],
  })));
}

function showHosts(hosts) {
  tables.hosts.update(hosts.map((one) => (
    { key: one.host, cells: [one.here ? `${one.host} (this host)` : one.host, `${one.channels}`, `${one.registrations}`] })));
}

function eventText(record) {
  switch (record.kind) {
    case "joined": return "its contract came into force";
    case "left": return "its contract ended";
    case "granted": return `granted ${percent(record.granted)} of the ${percent(record.wanted)} that its controller wants`;
    case "decision": return record.text;
    case "ecall": return `event of ${record.service} for process ${record.pid}`;
    case "channel": return `${record.received ? "received" : "submitted"} an event of ${record.bytes} bytes on channel ${record.channel}`;
    case "policy": return `policy ${record.policy} on channel ${record.channel}: ${record.text}`;
    default: return record.kind;
  }
}

function showEvents() {
  const time = now();
  tables.events.update(events.toReversed().map(({ key, record }) => ({
    key,
    cells: [duration(Math.max(0, Math.round(time - record.at_ns / NS)) * NS), record.app === undefined ? "–" : names.get(record.app) ?? `${record.app}`, eventText(record)],
  })));
}

// ---- drawing ---------------------------------------------------------------------------------------------------

function draw() {
  if (!charts || samples.length === 0) return;
  inFrame("host", drawHost);
  if (selected === null) return;
  for (const [name, piece] of [["chosen", showChosen], ["budget", drawBudget], ["misses", drawMisses], ["errors", drawErrors]]) {
    inFrame(name, () => drawOfChosen(piece));
  }
}

function drawOfChosen(piece) {
  const app = present.get(selected);
  if (app) {
    detail ??= makeDetail();
    piece(app, now());
  } else if (selected !== null) setText(at("detail-text"), "This application has left.");
}

function drawHost() {
  const [time, last] = [now(), samples.at(-1)];
  charts.host.show([ages(time), samples.map((s) => s.granted), samples.map((s) => s.guaranteed), samples.map((s) => s.capacity)],
    `Now ${percent(last.granted)} granted and ${percent(last.guaranteed)} guaranteed, of ${percent(last.capacity)} that may be promised`);
}

/** The times of the readings before `time`, in seconds. */
const ages = (time) => samples.map((one) => one.at - time);

function showChosen(app) {
  setText(at("h-detail"), `Application ${app.id}: ${app.contract.name}`);
  setText(at("detail-text"), `Process ${app.pid} of user ${app.owner.uid}, class ${app.contract.class}, period ${duration(app.contract.period_ns)}, ` +
    `target interval −${app.contract.early} T to ${app.contract.late} T, ${app.threads.length} threads under reservation`);
}

function drawBudget(app, time) {
  const own = jobs.get(app.id) ?? [];
  const of = (value) => samples.map((one) => (one.apps.has(app.id) ? value(one.apps.get(app.id)) : null));
  const used = own.length ? meanUse(own) : of((one) => one.used);
  detail.budget.show([ages(time), of((one) => one.granted), of((one) => one.wanted), used],
    `Now ${percent(app.granted)} granted, ${percent(app.wanted)} wanted, ${percent(app.used)} used in the mean`);
}

function drawMisses(app, time) {
  const seconds = perSecond(app.id, time);
  detail.misses.show(seconds, `${sum(seconds[1], Number)} of ${sum(seconds[2], Number)} jobs missed their deadline in the last minute`);
}

function drawErrors(app, time) {
  const own = jobs.get(app.id) ?? [];
  const late = own.filter((job) => job.error > 0).length;
  const span = `the last ${Math.round(spanOf(own, time))} s`;
  const said = own.length ? `${own.length} jobs in ${span}, ${late} with a positive error` : `No jobs of your own applications in ${span}`;
  setText(at("errors-text"), said);
  detail.errors.show(classes(own.map((job) => job.error)), said);
}

/** The seconds of which all jobs of an application are known: at most a minute. */
function spanOf(own, time) {
  const first = own.length >= MOST_JOBS ? own[0].at : 0;
  return Math.max(0, Math.min(SPAN, time - Math.max(first, completeSince)));
}

/** The mean share of the jobs that ended between two readings; a reading without an end keeps the last mean. */
function meanUse(own) {
  let index = 0;
  let mean = null;
  return samples.map((one) => {
    const first = index;
    while (index < own.length && own[index].at <= one.at) index += 1;
    if (index > first) mean = sum(own.slice(first, index), (job) => job.share) / (index - first);
    return mean;
  });
}

/** Missed and ended jobs in each second, from the counts of the state. */
function perSecond(id, time) {
  const x = Array.from({ length: SPAN }, (_, second) => second + 1 - SPAN);
  const counts = x.map(() => [null, null]);
  for (let index = 1; index < samples.length; index += 1) {
    const [before, after] = [samples[index - 1].apps.get(id), samples[index].apps.get(id)];
    const second = Math.floor(samples[index].at - time) + SPAN;
    if (!before || !after || second < 0 || second >= SPAN) continue;
    counts[second][0] += Math.max(0, after.misses - before.misses);
    counts[second][1] += Math.max(0, after.jobs - before.jobs);
  }
  return [x, counts.map((one) => one[0]), counts.map((one) => one[1])];
}

// ---- the loop --------------------------------------------------------------------------------------------------

const SLOW = [
  ["/v1/channels", showChannels], ["/v1/hosts", showHosts], ["/v1/policies", showPolicies], ["/v1/net", showNet], ["/v1/energy", showEnergy],
];
let turn = 0;
let answeredAt = performance.now();
let stopped = false;

async function readSlow([path, show]) {
  try {
    const answer = await get(path);
    inFrame(path, () => show(answer));
  } catch (error) {
    if (error.code !== "channels_off") throw error;
    setText(at("channels-off"), "This daemon has no channels: the section [channels] of its configuration is not enabled.");
  }
}

async function look() {
  const status = await get("/v1/status");
  inFrame("applications", () => showStatus(status));
  inFrame("memory", () => showMemory(status));
  if (turn % 2 === 0 || reached !== null) await readTimeline();
  sample(status);
  inFrame("events", showEvents);
  draw();
  // One of the slower paths in a second; all of them at the first look.
  const slow = turn === 0 ? SLOW : turn % 4 === 1 ? [SLOW[((turn - 1) / 4) % SLOW.length]] : [];
  for (const path of slow) await readSlow(path);
  turn += 1;
  say("Live, four readings in a second");
}

/** A daemon that restarts takes another port and gives new tokens, so that this page may never be answered again. */
function noAnswer(ms) {
  if (ms < LOST_MS) return "The daemon does not answer; the page tries again";
  return `The daemon has not answered for ${Math.round(ms / 1000)} s. If it has restarted, open its new page: qfabric web`;
}

async function run() {
  if (stopped) return;
  let pause = PAUSE_MS;
  const start = performance.now();
  try {
    if (!document.hidden) await look();
    answeredAt = performance.now();
    pause = Math.max(50, PAUSE_MS - (performance.now() - start));
  } catch (error) {
    pause = TROUBLE_MS;
    stopped ||= error.status === 401;
    if (error instanceof Refused) answeredAt = performance.now();
    say(error instanceof Refused ? `${error.message}; ${error.next}` : noAnswer(performance.now() - answeredAt), true);
  }
  if (!stopped) setTimeout(run, pause);
}

const token = takeToken();
if (token === null) {
  say("This page needs the address that this command prints: qfabric web --print-url", true);
} else {
  makeCharts();
  get("/v1/host").then((own) => setText(at("host"), own.host)).catch(() => {});
  run();
}
