// The table of jobs: only the rows in sight exist, however many there are.

const TALLEST = 2_000_000; // pixels; browsers lose count somewhere above six million
const PRINTED = 60;

const EVERY_COLUMN = [
  { key: "id", label: "job", width: 11, text: (jobs, row) => jobs.id(row) },
  { key: "outcome", label: "outcome", width: 12, text: (jobs, row) => jobs.word("outcome", row) },
  { key: "site", label: "last site", width: 16, narrow: false, text: (jobs, row) => jobs.word("site", row) || UNKNOWN },
  { key: "cause", label: "main cause of loss", width: 18, narrow: false, text: (jobs, row) => jobs.word("cause", row) || UNKNOWN },
  { key: "attempts", label: "attempts", width: 8, number: true, narrow: false, text: (jobs, row) => whole(jobs.attempts[row]) },
  { key: "slot", label: "slot time", width: 9, number: true, text: (jobs, row) => span(jobs.seconds("slot", row)) },
  { key: "compute", label: "compute", width: 9, number: true, narrow: false, text: (jobs, row) => span(jobs.seconds("compute", row)) },
  { key: "transfer", label: "transfer", width: 9, number: true, narrow: false, text: (jobs, row) => span(jobs.seconds("transfer", row)) },
  { key: "bad", label: "lost", width: 8, number: true, text: (jobs, row) => span(jobs.seconds("bad", row)) },
  { key: "begin", label: "first event", width: 17, narrow: false, text: (jobs, row) => moment(jobs.begin_at(row), jobs.about) },
];

class JobTable {
  constructor(jobs, { sorted, opened }) {
    this.jobs = jobs;
    // A log without transfers has no column for them.
    this.columns = EVERY_COLUMN.filter((column) => column.key !== "transfer" || jobs.about.moved);
    this.sorted = sorted;
    this.opened = opened;
    this.list = new Uint32Array(0);
    this.active = 0;
    this.scroller = document.getElementById("scroller");
    this.grid = document.getElementById("grid");
    this.body = document.getElementById("grid-body");
    this.above = this.#space();
    this.below = this.#space();
    this.body.append(this.above, this.below);
    this.pool = [];
    this.#head();
    const narrow = matchMedia("(max-width: 600px)");
    this.#widths(narrow.matches);
    narrow.addEventListener("change", () => this.#widths(narrow.matches));
    this.scroller.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    this.body.addEventListener("click", (event) => {
      const line = event.target.closest("tr[data-at]");
      if (line) this.#open(Number(line.dataset.at));
    });
    this.grid.addEventListener("keydown", (event) => this.#key(event));
    addEventListener("beforeprint", () => this.#print(true));
    addEventListener("afterprint", () => this.#print(false));
    matchMedia("print").addEventListener("change", (event) => this.#print(event.matches));
  }

  #space() {
    return element("tr", { class: "space", "aria-hidden": "true" }, element("td"));
  }

  #head() {
    const line = element("tr", { "aria-rowindex": 1 });
    for (const column of this.columns) {
      const cell = element("th", { scope: "col", class: classes(column), "data-key": column.key });
      const button = element("button", { type: "button", text: column.label });
      button.addEventListener("click", () => this.sorted(column.key, column.number || column.key === "begin"));
      cell.append(button);
      line.append(cell);
    }
    document.getElementById("grid-head").append(line);
  }

  // A narrow page has fewer columns (the style hides the others); all else follows from the head.
  #widths(narrow) {
    const seen = this.columns.filter((column) => !narrow || column.narrow !== false);
    const total = seen.reduce((sum, column) => sum + column.width, 0);
    for (const column of seen) {
      this.grid.querySelector(`thead [data-key="${column.key}"]`).style.width = `${(column.width / total) * 100}%`;
    }
    for (const space of [this.above, this.below]) space.firstChild.colSpan = seen.length;
  }

  // The list is the rows to show, in their order.
  show(list, key, descending) {
    this.list = list;
    this.active = 0;
    for (const cell of this.grid.querySelectorAll("thead th")) {
      if (cell.dataset.key === key) cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    this.grid.setAttribute("aria-rowcount", list.length + 1);
    this.scroller.scrollTop = 0;
    this.draw();
  }

  get #rowHeight() {
    return parseFloat(getComputedStyle(this.grid).getPropertyValue("--row")) || 32;
  }

  #window() {
    const tall = this.#rowHeight;
    const full = this.list.length * tall;
    const height = Math.min(full, TALLEST);
    const room = Math.max(1, this.scroller.clientHeight - 36);
    const fit = Math.ceil(room / tall) + 1;
    const top = Math.max(0, Math.min(this.scroller.scrollTop, height - room));
    if (full === height) {
      const first = Math.max(0, Math.floor(top / tall) - 4);
      return { first, count: Math.min(fit + 8, this.list.length - first), above: first * tall, height, tall, room };
    }
    // Taller than a browser can scroll: the bar stands for the rows in proportion.
    const first = Math.round((top / (height - room)) * (this.list.length - fit + 1));
    const count = Math.min(fit, this.list.length - first);
    return { first, count, above: Math.min(top, height - count * tall), height, tall, room };
  }

  draw() {
    if (this.printing || !this.scroller.clientHeight) return;
    const { first, count, above, height, tall } = this.#window();
    this.#fill(first, count);
    this.above.firstChild.style.height = `${above}px`;
    this.below.firstChild.style.height = `${Math.max(0, height - above - count * tall)}px`;
  }

  #fill(first, count) {
    while (this.pool.length < count) {
      const cells = this.columns.map((column) => column.key === "id"
        ? element("th", { scope: "row", class: classes(column) })
        : element("td", { class: classes(column) }));
      const line = element("tr", {}, ...cells);
      this.pool.push({ line, cells });
    }
    this.pool.forEach(({ line, cells }, place) => {
      if (place >= count) { line.remove(); return; }
      const at = first + place, row = this.list[at];
      line.dataset.at = at;
      line.id = `job-row-${place}`;
      line.setAttribute("aria-rowindex", at + 2);
      line.setAttribute("aria-selected", at === this.active);
      line.classList.toggle("active", at === this.active && document.activeElement === this.grid);
      this.columns.forEach((column, i) => {
        const text = column.text(this.jobs, row);
        if (cells[i].textContent !== text) cells[i].textContent = text;
      });
      if (this.jobs.params) cells[0].title = this.jobs.word("params", row);
      cells[3].title = [this.jobs.word("cause", row), this.jobs.word("reason", row)].filter(Boolean).join(": ");
      if (line.parentNode !== this.body) this.below.before(line);
    });
    const place = this.active - first;
    if (place >= 0 && place < count) this.grid.setAttribute("aria-activedescendant", `job-row-${place}`);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  #key(event) {
    if (event.target !== this.grid || event.ctrlKey || event.metaKey || event.altKey) return;
    const { room, tall } = this.#window();
    const page = Math.max(1, Math.floor(room / tall) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      this.active = Math.max(0, Math.min(this.list.length - 1, this.active + moves[event.key]));
      this.#reveal();
    } else if (event.key === "Enter" || event.key === " ") {
      this.#open(this.active);
    } else return;
    event.preventDefault();
  }

  #reveal() {
    const { height, tall, room } = this.#window();
    const full = this.list.length * tall;
    if (full === height) {
      const top = this.active * tall;
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (top + tall > this.scroller.scrollTop + room) this.scroller.scrollTop = top + tall - room;
    } else {
      const { first, count } = this.#window();
      if (this.active < first || this.active >= first + count - 2) {
        const fit = Math.ceil(room / tall) + 1;
        const target = this.active < first ? this.active : this.active - count + 3;
        this.scroller.scrollTop = (target / (this.list.length - fit + 1)) * (height - room);
      }
    }
    this.draw();
  }

  #open(at) {
    if (at >= this.list.length) return;
    this.active = at;
    this.draw();
    this.opened(this.list[at]);
  }

  #print(starts) {
    this.printing = false;
    if (starts) {
      const count = Math.min(PRINTED, this.list.length);
      this.#fill(0, count);
      document.getElementById("print-note").textContent = count < this.list.length
        ? `The first ${whole(count)} of ${plural(this.list.length, "job")}; the page itself, --csv and --parquet have the others.` : "";
      this.printing = true;
    } else this.draw();
  }
}

const classes = (column) => [column.number ? "n" : "", column.narrow === false ? "narrow-off" : ""].join(" ").trim();
