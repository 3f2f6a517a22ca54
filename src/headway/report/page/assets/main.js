// What happens when: the page stands before any of this runs.

async function main() {
  const about = JSON.parse(document.getElementById("about").textContent);
  let timeline = null;
  setUpTheme(() => timeline?.repaint());
  // Paper is light and has no folds; a canvas keeps the colours that it was drawn with.
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.printing = "";
    timeline?.repaint();
    for (const closed of document.querySelectorAll("details:not([open])")) {
      closed.open = true;
      addEventListener("afterprint", () => { closed.open = false; }, { once: true });
    }
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.printing;
    timeline?.repaint();
  });
  if (!about.jobs.rows) return;
  if (typeof DecompressionStream === "undefined") {
    const words = document.getElementById("jobs-problem");
    words.textContent = "This browser cannot unpack the jobs of this file (it has no DecompressionStream); one from 2023 or later can. All above is complete.";
    words.hidden = false;
    return;
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done))); // paint first
  const jobs = new Jobs(await unpack("jobs", about), about);
  const panel = new JobPanel(jobs, about);
  const filters = new Filters(jobs);
  let key = "bad", descending = true, order = jobs.sorted(key, descending);

  const table = new JobTable(jobs, {
    opened: (row) => panel.open(row),
    sorted(column, downFirst) {
      descending = column === key ? !descending : Boolean(downFirst);
      key = column;
      order = jobs.sorted(key, descending);
      apply();
    },
  });

  function apply() {
    const { list, mask } = filters.run(order);
    table.show(list, key, descending);
    showTimeline(mask, list);
  }

  function showTimeline(mask, list) {
    if (!timeline) return;
    const way = document.getElementById("order").value, { details } = timeline;
    const rows = way === "table" ? list.filter((row) => details.has(row))
      : jobs.sorted(way, way === "bad", details.counts.row.filter((row) => mask[row]));
    timeline.show(rows);
  }

  // From a job that a finding names to its attempts; where the table lacks it, at least to a search.
  document.addEventListener("click", (event) => {
    const name = event.target.closest("[data-job]")?.dataset.job;
    if (name === undefined) return;
    const row = jobs.rowOf(name);
    if (row >= 0) panel.open(row);
    else {
      document.getElementById("find").value = name;
      apply();
      document.getElementById("jobs").scrollIntoView();
    }
  });

  for (const name of ["filters", "table", "timeline"]) document.getElementById(name).hidden = false;
  filters.listen(apply);
  document.getElementById("order").addEventListener("change", apply);
  apply();
  document.documentElement.dataset.ready = "jobs";

  const [tries, seconds, counts] = await Promise.all(["attempts", "pieces", "details"].map((name) => unpack(name, about)));
  panel.details = new Details(jobs, about, { tries, seconds, counts });
  timeline = new Timeline(jobs, panel.details, about, (row) => panel.open(row));
  apply();
  document.documentElement.dataset.ready = "all";
}

class Filters {
  constructor(jobs) {
    this.jobs = jobs;
    this.form = document.getElementById("filters");
    this.find = document.getElementById("find");
    this.selects = {};
    for (const column of ["outcome", "site", "cause", "user"]) {
      const select = document.getElementById(`by-${column}`);
      const used = new Map();
      for (const code of jobs[column]) used.set(code, (used.get(code) ?? 0) + 1);
      const entries = [...used].sort(([a, n], [b, m]) => m - n || a - b);
      for (const [code, number] of entries.slice(0, 500)) {
        const word = jobs.words[column][code] || (column === "cause" ? "nothing lost" : "not known");
        select.append(element("option", { value: code, text: `${word} (${whole(number)})` }));
      }
      this.selects[column] = select;
      if (column === "user" && used.size < 2) document.getElementById("user-label").hidden = true;
    }
  }

  listen(changed) {
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("reset", () => setTimeout(changed));
    this.find.addEventListener("input", changed);
    for (const select of Object.values(this.selects)) select.addEventListener("change", changed);
    // From a cause elsewhere on the page to the jobs concerned.
    document.addEventListener("click", (event) => {
      const link = event.target.closest("[data-cause]");
      if (!link) return;
      this.form.reset();
      this.selects.cause.value = this.jobs.about.words.cause_keys.indexOf(link.dataset.cause) + 1;
      changed();
      document.getElementById("jobs").scrollIntoView();
      this.find.focus({ preventScroll: true });
    });
  }

  run(order) {
    const { jobs } = this, began = performance.now();
    const chosen = Object.fromEntries(Object.entries(this.selects).map(([name, { value }]) => [name, value === "" ? null : Number(value)]));
    const mask = jobs.mask({ text: this.find.value, ...chosen });
    let found = 0, slot = 0, bad = 0;
    for (let row = 0; row < mask.length; row++) {
      if (!mask[row]) continue;
      found += 1;
      slot += jobs.slot[row];
      bad += jobs.bad[row];
    }
    const list = new Uint32Array(found);
    for (let at = 0, place = 0; place < found; at++) if (mask[order[at]]) list[place++] = order[at];
    const { tick } = jobs.about;
    document.getElementById("count").textContent =
      `${found === jobs.rows ? "All" : whole(found) + " of"} ${plural(jobs.rows, "job")}: ${span(slot * tick)} of slot time, ${span(bad * tick)} lost.`;
    this.took = performance.now() - began;
    this.form.dataset.took = this.took.toFixed(1);
    return { list, mask };
  }
}

main();
