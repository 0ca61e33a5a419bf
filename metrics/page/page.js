"use strict";
const GIB = 2 ** 30, EVERY_MS = 1000, SPAN_S = 300;
const at = (id) => document.getElementById(id);
const points = [];           // of /history.json, then one each second
let heard = 0, last;

function make(name, text, style) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (style) made.className = style;
  return made;
}

function draw(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const set = (id, text) => { if (at(id).textContent !== text) at(id).textContent = text; };
const count = (value) => value === null || value === undefined ? "–" : value.toLocaleString("en");
const rate = (value) => value === null || value === undefined ? "–" : value >= 100 ? value.toFixed(0) : value.toFixed(1);
const gib = (bytes) => `${(bytes / GIB).toFixed(Math.abs(bytes) < 100 * GIB ? 2 : 0)} GiB`;

function span(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
  if (days) return `${days} d ${hours % 24} h`;
  return hours ? `${hours} h ${minutes % 60} min` : `${minutes} min ${Math.floor(seconds % 60)} s`;
}

// One chart: lines over the last SPAN_S seconds, floors as dashed levels.
function chart(holder, label, lines, floors, unit) {
  const width = holder.clientWidth || 600, height = 132, left = 46, bottom = 18, top = 6;
  const now = points.length ? points[points.length - 1].t : 0, from = now - SPAN_S;
  const shown = points.filter((point) => point.t >= from);
  const values = lines.flatMap((line) => shown.map(line.of)).filter((value) => value !== null && value !== undefined);
  const most = nice(Math.max(...values, ...floors.map((floor) => floor.at), unit.least) / unit.of) * unit.of;
  const x = (t) => left + (width - left) * (t - from) / SPAN_S;
  const y = (value) => top + (height - bottom - top) * (1 - Math.max(0, value) / most);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const share of [0, 0.5, 1]) {
    svg.append(draw("line", { class: "grid", x1: left, x2: width, y1: y(most * share), y2: y(most * share) }));
    const text = draw("text", { x: left - 6, y: y(most * share) + 4, "text-anchor": "end" });
    text.textContent = unit.show(most * share);
    svg.append(text);
  }
  for (const [share, words] of [[0, `${SPAN_S / 60} min ago`], [1, "now"]]) {
    const text = draw("text", { x: left + (width - left) * share, y: height - 3, "text-anchor": share ? "end" : "start" });
    text.textContent = words;
    svg.append(text);
  }
  for (const line of lines) {
    const path = shown.filter((point) => line.of(point) !== null && line.of(point) !== undefined)
      .map((point) => `${x(point.t).toFixed(1)},${y(line.of(point)).toFixed(1)}`);
    if (path.length < 2) continue;
    const [begin] = path[0].split(","), [end] = path[path.length - 1].split(",");
    svg.append(draw("path", { class: "area", fill: line.colour, d: `M${begin},${y(0)}L${path.join("L")}L${end},${y(0)}Z` }));
    svg.append(draw("path", { class: "curve", stroke: line.colour, d: `M${path.join("L")}` }));
  }
  for (const floor of floors) svg.append(draw("line", { class: "floor", stroke: floor.colour, x1: left, x2: width, y1: y(floor.at), y2: y(floor.at) }));
  holder.replaceChildren(svg);
}

function nice(most) {
  const step = 10 ** Math.floor(Math.log10(most));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((times) => times * step).find((limit) => limit >= most * 0.999);
}

const COLOURS = ["var(--one)", "var(--two)"];

function nodes(status) {
  const holder = at("nodes");
  status.memory.forEach((memory, index) => {
    let card = holder.children[index];
    if (!card || card.dataset.node !== memory.node) {
      card = make("section", undefined, "card");
      card.dataset.node = memory.node;
      card.append(make("h2", `Headroom of ${memory.node}`));
      const figures = make("div", undefined, "figures"), big = make("p", undefined, "big");
      big.append(make("b"), " ", make("span", "above the floor"));
      figures.append(big, make("dl"));
      card.append(figures, make("div", undefined, "chart"), make("ul", undefined, "key"));
      holder.children[index] ? holder.children[index].replaceWith(card) : holder.append(card);
      const colour = COLOURS[index % 2];
      for (const [words, ink, dashed] of [["available", colour, ""], ["soft floor: stopped in order", "var(--busy)", "dash"], ["hard floor: killed at once", "var(--bad)", "dash"]]) {
        const item = make("li"), mark = make("i", undefined, dashed);
        mark.style.borderColor = ink;
        item.append(mark, words);
        card.lastChild.append(item);
      }
    }
  });
  while (holder.children.length > status.memory.length) holder.lastChild.remove();
  const most = Math.max(GIB, ...points.flatMap((point) => Object.values(point.available_bytes))); // one scale for all nodes
  status.memory.forEach((memory, index) => {
    const card = holder.children[index];
    const short = memory.headroom_bytes < 0, big = card.querySelector(".big");
    big.className = short ? "big bad" : "big";
    big.firstChild.textContent = gib(Math.abs(memory.headroom_bytes));
    big.lastChild.textContent = short ? "below the floor" : "above the floor";
    facts(card.querySelector("dl"), [
      ["available", gib(memory.available_bytes)],
      ["floor", gib(memory.floor_bytes)],
      ["lowest", gib(memory.lowest_available_bytes)],
      ["change", `${memory.headroom_bytes_per_s < 0 ? "−" : "+"}${(Math.abs(memory.headroom_bytes_per_s) / 2 ** 20).toFixed(0)} MiB/s`],
    ], true);
    chart(card.querySelector(".chart"), `${memory.node}: ${gib(memory.available_bytes)} available, soft floor ${gib(memory.floor_bytes)}, hard floor ${gib(memory.hard_floor_bytes)}`,
      [{ of: (point) => point.available_bytes[memory.node], colour: COLOURS[index % 2] }],
      [{ at: memory.floor_bytes, colour: "var(--busy)" }, { at: memory.hard_floor_bytes, colour: "var(--bad)" }],
      { of: GIB, least: most, show: (value) => `${+(value / GIB).toFixed(1)}` });
  });
}

function facts(holder, rows, boxed) {
  holder.replaceChildren(...rows.filter(([, value]) => value !== undefined && value !== null && value !== "").flatMap(([name, value, style]) => {
    const parts = [make("dt", name), make("dd", String(value), style)];
    if (!boxed) return parts;
    const box = make("div");
    box.append(...parts);
    return [box];
  }));
}

function ranks(status) {
  at("ranks").replaceChildren(...(status.ranks.length ? status.ranks : [null]).map((one) => {
    const item = make("li");
    if (!one) { item.append("No launch yet"); return item; }
    const [word, style] = !one.up ? ["down", "bad"] : one.loaded ? ["up", "good"] : ["loading", "busy"];
    item.append(make("span", `rank ${one.rank} on ${one.node}`), make("span", word, `what ${style}`));
    return item;
  }));
}

function past(status) {
  facts(at("past"), [
    ["restarts", status.restarts.map((one) => `${one.count} × ${one.reason}`).join(", ") || "none"],
    ["evictions", (status.evictions || []).map((one) => `${one.count} × ${one.node}, ${one.stage} floor`).join(", ") || "none"],
    ["context ladder", status.context_ladder_rung ? `${status.context_ladder_rung} down` : "full context"],
    ["probes", status.probes.map((one) => `${one.probe} ${one.passed ? "passed" : "failed"} in ${one.took_s.toFixed(1)} s`).join(", ") || "none yet"],
    ["supervisor", `up for ${span(status.up_s)}`],
  ]);
}

function launches(status) {
  const rows = [...status.ended_launches].reverse().map((end) => [end.launch_id, `ended ${span(status.taken_at_s - end.ended_unix_s)} ago`, end.reason, end.detail, [end.exits, end.logs && `logs ${end.logs}`].filter(Boolean).join(" · ")]);
  if (status.launch_id) rows.unshift([status.launch_id, "now", `launch ${status.launch}: ${status.state}`,
    Object.entries(status.launch_phases_s).map(([phase, seconds]) => `${phase} ${seconds < 10 ? `${seconds.toFixed(1)} s` : span(seconds)}`).join(", "), ""]);
  at("launches").replaceChildren(...(rows.length ? rows : [["", "", "No launch yet", "", ""]]).map(([id, when, reason, detail, proof]) => {
    const item = make("li"), what = make("div");
    const said = make("p");
    said.append(make("b", reason), detail ? ` ${detail}` : "");
    what.append(said);
    if (proof) what.append(make("p", proof, "proof"));
    if (id) what.append(make("p", id, "proof"));
    item.append(make("span", when, "when"), what);
    return item;
  }));
}

function hardware(status) {
  const rows = (status.hardware || []).flatMap((node) => [
    ...node.gpus.map((gpu) => [`${node.node} GPU ${gpu.device}`, [
      gpu.sm_mhz && `${gpu.sm_mhz.toFixed(0)} MHz`, gpu.power_w && `${gpu.power_w.toFixed(0)} W`, gpu.temperature_c && `${gpu.temperature_c.toFixed(0)} °C`,
      gpu.held_down_by && gpu.held_down_by.length ? `held down by ${gpu.held_down_by.join(", ")}` : ""].filter(Boolean).join(", ")]),
    ...node.ports.map((port) => [`${node.node} ${port.device}`, [port.up ? "up" : "down", port.mtu_bytes && `MTU ${port.mtu_bytes}`, port.bytes_per_s && `${port.bytes_per_s * 8 / 1e9} Gbit/s`].filter(Boolean).join(", ")]),
    [`${node.node} disk`, node.disk_free_bytes ? `${gib(node.disk_free_bytes)} left` : ""],
  ]);
  facts(at("hardware"), rows.length ? rows : [["", "Not read yet"]]);
}

function served(status) {
  const pins = status.pins || {};
  facts(at("bundle"), [
    ["model", status.served_name], ["target", status.target], ["variant", status.variant],
    ["generation", status.generation === undefined ? "" : `${status.generation}${status.newer_generation ? ` (${status.newer_generation} waits for a restart)` : ""}`],
    ["state folder", status.state_folder_lost ? "gone, or replaced by another" : ""],
    ["context", status.context_tokens && `${count(status.context_tokens)} tokens`], ["runner", status.runner],
    ...Object.entries(pins).map(([name, value]) => [name.replaceAll("_", " "), value, "proof"]),
  ]);
  const url = status.url || "http://127.0.0.1:8888/v1";
  const body = JSON.stringify({ model: status.served_name || "twinfold-demo", messages: [{ role: "user", content: "What is 6 times 7?" }] });
  set("request", `curl ${url}/chat/completions \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`);
}

const GOOD = "serving", BAD = ["gave_up", "stopped"];

function show(status) {
  const words = status.state.replaceAll("_", " ");
  set("state", status.ready || status.state !== GOOD ? words : "not ready");
  at("state").className = `pill ${status.ready ? "good" : BAD.includes(status.state) || !status.live ? "bad" : "busy"}`;
  set("headline", `${status.served_name ? `${status.served_name}: ` : ""}${words} for ${span(status.in_state_s)}`);
  at("why").hidden = !status.why;
  set("why", status.why);
  document.title = `${words} – twinfold`;
  const seen = status.throughput;
  set("decode", rate(seen.decode_tokens_per_s));
  set("prefill", `${rate(seen.prefill_tokens_per_s)}/s`);
  set("running", count(seen.running));
  set("waiting", count(seen.waiting));
  set("generated", count(seen.generated_tokens));
  chart(at("speed-chart"), `Tokens a second over the last ${SPAN_S / 60} minutes, now ${rate(seen.decode_tokens_per_s)}`,
    [{ of: (point) => point.decode_tokens_per_s, colour: "var(--one)" }], [], { of: 1, least: 10, show: (value) => count(value) });
  nodes(status);
  ranks(status);
  past(status);
  served(status);
  hardware(status);
  launches(status);
}

function remember(status) {
  const newest = points[points.length - 1];
  if (newest && status.taken_at_s - newest.t < 0.5) return;
  points.push({
    t: status.taken_at_s,
    decode_tokens_per_s: status.throughput.decode_tokens_per_s,
    available_bytes: Object.fromEntries(status.memory.map((memory) => [memory.node, memory.available_bytes])),
  });
  while (points.length && points[0].t < status.taken_at_s - SPAN_S - 5) points.shift();
}

async function ask(path) {
  const reply = await fetch(path, { cache: "no-store" });
  if (!reply.ok) throw new Error(`${path}: ${reply.status}`);
  return reply.json();
}

async function turn() {
  try {
    const status = await ask("/status.json");
    heard = Date.now();
    remember(status);
    last = status;
    show(status);
    set("age", `as of ${new Date(status.taken_at_s * 1000).toLocaleTimeString()}`);
  } catch {
    set("state", "no answer");
    at("state").className = "pill bad";
    set("age", heard ? `last heard ${span((Date.now() - heard) / 1000)} ago` : "the supervisor does not answer");
  }
}

at("copy").addEventListener("click", async () => {
  const text = at("request").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no clipboard without a secure origin: leave it selected
    getSelection().selectAllChildren(at("request"));
    document.execCommand("copy");
  }
  set("copy", "Copied");
  setTimeout(() => set("copy", "Copy"), 2000);
});

addEventListener("resize", () => { if (last) show(last); });

(async () => {
  try { points.push(...(await ask("/history.json")).points); } catch { /* it fills by itself */ }
  await turn();
  setInterval(turn, EVERY_MS);
})();
