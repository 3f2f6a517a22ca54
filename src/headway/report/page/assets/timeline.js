// The timeline: jobs as rows, time from left to right, each piece by its phase; badput is hatched.

const AXIS_HEIGHT = 28;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const MANY = 500; // by the clock, more jobs than this are specks at first
const NO_SLOT = new Map([["queued", 1], ["stored", 1], ["held", 3], ["delivery", 5], ["prefetch", 5]]); // and how thick they are

// Fills for every phase and verdict, in the colours of the theme.
function paints(about, scale) {
  const paper = colour("paper");
  const fills = {};
  for (const phase of about.words.phases) {
    const own = colour(phase);
    fills[phase] = { good: own, none: own, bad: weave(own, paper, scale, true), open: weave(own, paper, scale, false) };
  }
  return fills;
}

function weave(own, paper, scale, stripes) {
  const size = Math.round(6 * scale);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = own;
  pen.fillRect(0, 0, size, size);
  if (stripes) {
    pen.strokeStyle = paper;
    pen.lineWidth = size * 0.3;
    pen.beginPath();
    for (const shift of [-size, 0, size]) { pen.moveTo(shift - 1, size + 1); pen.lineTo(shift + size + 1, -1); }
    pen.stroke();
  } else {
    pen.fillStyle = paper;
    pen.fillRect(size / 4, size / 4, size / 2, size / 2);
  }
  return pen.createPattern(tile, "repeat");
}

class Timeline {
  constructor(jobs, details, about, opened) {
    Object.assign(this, { jobs, details, about, opened });
    this.rows = document.getElementById("rows");
    this.sizer = document.getElementById("sizer");
    this.canvas = document.getElementById("canvas");
    this.tip = document.getElementById("tip");
    this.list = [];
    const clock = document.getElementById("clock");
    this.relative = details.counts.rows > MANY;
    clock.value = this.relative ? "since" : "clock";
    this.roomy = false;
    this.chosen = null; // { place, piece } of the keyboard
    this.repaint();
    new ResizeObserver(() => this.draw()).observe(this.rows);
    this.rows.addEventListener("scroll", () => { this.#hide(); this.#soon(); }, { passive: true });
    this.rows.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.rows.addEventListener("keydown", (event) => this.#key(event));
    this.rows.addEventListener("blur", () => { this.chosen = null; this.#hide(); this.#soon(); });
    this.#pointer();
    for (const button of document.querySelectorAll("[data-do]")) {
      button.addEventListener("click", () => this.act(button.dataset.do, button));
    }
    clock.addEventListener("change", () => { this.relative = clock.value === "since"; this.fit(); });
  }

  repaint() {
    this.scale = Math.min(3, devicePixelRatio || 1);
    this.fills = paints(this.about, this.scale);
    this.ink = colour("ink"); this.quiet = colour("quiet"); this.rule = colour("line");
    this.paper = colour("paper"); this.focus = colour("focus");
    this.draw();
  }

  // The list has rows of jobs whose attempts the file keeps.
  show(list) {
    this.list = list;
    this.chosen = null;
    this.rows.scrollTop = 0;
    this.fit();
  }

  // All of the time; but one job of weeks among many must not squeeze the others to nothing.
  fit() {
    let low = Infinity;
    this.widest = 1;
    const ends = new Float64Array(this.list.length);
    this.list.forEach((row, place) => {
      const { begin, end } = this.details.extent(row);
      low = Math.min(low, this.relative ? 0 : begin);
      ends[place] = this.relative ? end - begin : end;
      this.widest = Math.max(this.widest, this.jobs.id(row).length);
    });
    ends.sort();
    const high = ends.at(-1) ?? 1;
    this.bounds = low < high ? [low, high] : [0, 1];
    this.view = [...this.bounds];
    const most = ends[Math.floor(ends.length * 0.98)];
    if (this.relative && ends.length > MANY && most > low) this.view[1] = most;
    this.draw();
  }

  get gutter() {
    if (this.rows.clientWidth < 560) return 8;
    return Math.min(200, 20 + 7 * this.widest);
  }

  #layout() {
    const width = this.rows.clientWidth, height = this.rows.clientHeight;
    const fitting = (height - AXIS_HEIGHT) / Math.max(1, this.list.length);
    const tall = this.roomy ? 20 : Math.max(4, Math.min(20, fitting));
    return { width, height, tall };
  }

  #x(ticks) {
    const [low, high] = this.view;
    return this.gutter + ((ticks - low) / (high - low)) * (this.rows.clientWidth - this.gutter);
  }

  #soon() {
    this.waiting ??= requestAnimationFrame(() => { this.waiting = null; this.draw(); });
  }

  draw() {
    if (!this.bounds || !this.rows.clientWidth) return;
    const { width, height, tall } = this.#layout();
    const { canvas, scale } = this;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.sizer.style.height = `${Math.max(height, Math.ceil(this.list.length * tall) + AXIS_HEIGHT)}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = this.paper;
    pen.fillRect(0, 0, width, height);
    const first = Math.floor(this.rows.scrollTop / tall);
    const last = Math.min(this.list.length, first + Math.ceil((height - AXIS_HEIGHT) / tall) + 1);
    this.#axis(pen, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(0, AXIS_HEIGHT, width, height - AXIS_HEIGHT);
    pen.clip();
    for (let place = first; place < last; place++) this.#row(pen, place, tall, width);
    pen.restore();
    this.#labels(pen, first, last, tall);
    document.getElementById("timeline-shown").textContent = this.list.length
      ? `Rows ${whole(first + 1)} to ${whole(Math.max(first + 1, Math.min(last, first + Math.floor((height - AXIS_HEIGHT) / tall))))} of ${plural(this.list.length, "job")}.`
      : "No job here has attempts in this file.";
  }

  #axis(pen, width, height) {
    const [low, high] = this.view, { tick, origin, zone } = this.about;
    const seconds = (high - low) * tick;
    const raw = seconds / Math.max(2, (width - this.gutter) / 110);
    const step = raw < 1 ? 10 ** Math.ceil(Math.log10(raw)) : STEPS.find((one) => one >= raw) ?? Math.ceil(raw / 86400) * 86400;
    const shift = this.relative ? 0 : origin + zone;
    const from = Math.ceil((low * tick + shift) / step) * step;
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    for (let at = from; at <= high * tick + shift; at += step) {
      const x = Math.round(this.#x((at - shift) / tick)) + 0.5;
      pen.fillStyle = this.rule;
      pen.fillRect(x, AXIS_HEIGHT - 6, 1, height);
      pen.fillStyle = this.quiet;
      pen.textAlign = x > width - 48 ? "right" : x < 48 ? "left" : "center";
      pen.fillText(this.relative ? lengthMark(at, step) : clockMark(at, step), Math.min(x, width - 4), 12);
    }
  }

  #row(pen, place, tall, width) {
    const row = this.list[place];
    const top = AXIS_HEIGHT + place * tall - this.rows.scrollTop;
    const high = tall > 6 ? tall - 2 : tall > 3 ? tall - 1 : tall;
    let thin = null;
    for (const piece of this.details.pieces(row)) {
      const base = this.relative ? this.details.extent(row).begin : 0;
      const x = this.#x(piece.begin - base), end = this.#x(piece.end - base);
      if (end < this.gutter || x > width) continue;
      const left = Math.max(x, this.gutter), wide = Math.max(0.75, Math.min(end, width) - left);
      pen.fillStyle = this.fills[piece.phase][piece.verdict];
      if (NO_SLOT.has(piece.phase)) {
        thin = Math.min(NO_SLOT.get(piece.phase), high);
        pen.fillRect(left, top + (high - thin) / 2, wide, thin);
      } else pen.fillRect(left, top, wide, high);
    }
    if (this.chosen?.place === place) {
      const piece = this.details.pieces(row)[this.chosen.piece];
      if (!piece) return;
      const base = this.relative ? this.details.extent(row).begin : 0;
      const x = this.#x(piece.begin - base);
      pen.strokeStyle = this.focus;
      pen.lineWidth = 2;
      pen.strokeRect(Math.max(x, this.gutter) - 1, top - 1, Math.max(3, this.#x(piece.end - base) - x) + 2, high + 2);
    }
  }

  #labels(pen, first, last, tall) {
    if (this.gutter < 40) return;
    const every = Math.max(1, Math.ceil(14 / tall));
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillStyle = this.quiet;
    for (let place = Math.ceil(first / every) * every; place < last; place += every) {
      const y = AXIS_HEIGHT + (place + 0.5) * tall - this.rows.scrollTop;
      if (y > AXIS_HEIGHT + 4) pen.fillText(this.jobs.id(this.list[place]), 8, y);
    }
  }

  act(what, button) {
    const [low, high] = this.view, length = high - low;
    if (what === "in") this.#zoom(0.5, (low + high) / 2);
    else if (what === "out") this.#zoom(2, (low + high) / 2);
    else if (what === "left") this.#pan(-length / 3);
    else if (what === "right") this.#pan(length / 3);
    else if (what === "fit") this.fit();
    else if (what === "rows") {
      this.roomy = !this.roomy;
      button.setAttribute("aria-pressed", this.roomy);
      this.draw();
    }
  }

  #zoom(factor, centre) {
    const [low, high] = this.view, least = Math.min(10, this.bounds[1] - this.bounds[0]);
    const length = Math.max(least, Math.min((high - low) * factor, this.bounds[1] - this.bounds[0]));
    const share = (centre - low) / (high - low);
    this.view = [centre - share * length, centre + (1 - share) * length];
    this.#pan(0);
  }

  #pan(by) {
    const length = this.view[1] - this.view[0];
    const low = Math.max(this.bounds[0], Math.min(this.view[0] + by, this.bounds[1] - length));
    this.view = [low, low + length];
    this.#hide();
    this.#soon();
  }

  #perPixel() {
    return (this.view[1] - this.view[0]) / (this.rows.clientWidth - this.gutter);
  }

  #wheel(event) {
    // The plain wheel scrolls the rows, and then the page: it is not ours to take.
    if (event.ctrlKey || event.metaKey) {
      const x = event.clientX - this.rows.getBoundingClientRect().left - this.gutter;
      this.#zoom(2 ** (event.deltaY / 200), this.view[0] + x * this.#perPixel());
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.#pan((event.deltaX || event.deltaY) * this.#perPixel());
    } else return;
    event.preventDefault();
  }

  #pointer() {
    let from = null, moved = false;
    this.rows.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && event.offsetX < this.rows.clientWidth) { from = event.clientX; moved = false; }
    });
    this.rows.addEventListener("pointermove", (event) => {
      if (from !== null && event.buttons) {
        const by = from - event.clientX;
        if (Math.abs(by) > 3 || moved) {
          moved = true;
          this.rows.setPointerCapture(event.pointerId);
          this.#pan(by * this.#perPixel());
          from = event.clientX;
        }
      } else this.#hover(event);
    });
    this.rows.addEventListener("pointerup", (event) => {
      const found = !moved && from !== null && this.#at(event);
      from = null;
      if (found) this.opened(this.list[found.place]);
    });
    this.rows.addEventListener("pointercancel", () => { from = null; });
    this.rows.addEventListener("pointerleave", () => { from = null; this.#hide(); });
  }

  #at(event) {
    const box = this.rows.getBoundingClientRect();
    const x = event.clientX - box.left - this.rows.clientLeft, y = event.clientY - box.top - this.rows.clientTop;
    if (y < AXIS_HEIGHT || x > this.rows.clientWidth) return null;
    const place = Math.floor((y - AXIS_HEIGHT + this.rows.scrollTop) / this.#layout().tall);
    if (place >= this.list.length) return null;
    const row = this.list[place], base = this.relative ? this.details.extent(row).begin : 0;
    const slack = 2 * this.#perPixel();
    const ticks = this.view[0] + (x - this.gutter) * this.#perPixel() + base;
    const pieces = this.details.pieces(row);
    let piece = pieces.findIndex((one) => ticks >= one.begin && ticks < one.end);
    if (piece < 0) piece = pieces.findIndex((one) => ticks >= one.begin - slack && ticks < one.end + slack);
    return { place, piece, x, y };
  }

  #hover(event) {
    const found = this.#at(event);
    if (found && (found.piece >= 0 || found.x < this.gutter)) this.#show(found.place, found.piece, found.x, found.y);
    else this.#hide();
  }

  #show(place, piece, x, y) {
    const lines = this.details.tell(this.list[place], piece);
    this.tip.replaceChildren(...lines.map((text) => element("p", { text })));
    this.tip.hidden = false;
    const { width, height } = this.tip.getBoundingClientRect();
    const right = Math.min(x + 12, this.rows.clientWidth - width - 4);
    this.tip.style.left = `${Math.max(4, right)}px`;
    this.tip.style.top = `${y + 20 + height > this.rows.clientHeight ? Math.max(4, y - height - 8) : y + 20}px`;
    return lines;
  }

  #hide() {
    this.tip.hidden = true;
  }

  #key(event) {
    if (event.altKey || !this.list.length) return;
    const places = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }, pieces = { ArrowRight: 1, ArrowLeft: -1 };
    if (event.key in places || event.key in pieces) {
      if (!this.chosen) this.chosen = { place: Math.floor(this.rows.scrollTop / this.#layout().tall), piece: 0 };
      else if (event.key in places) {
        this.chosen.place = Math.max(0, Math.min(this.list.length - 1, this.chosen.place + places[event.key]));
        this.chosen.piece = 0;
      } else this.chosen.piece += pieces[event.key];
      this.#reveal();
    } else if (event.key === "+" || event.key === "=") this.act("in");
    else if (event.key === "-") this.act("out");
    else if (event.key === "0") this.act("fit");
    else if (event.key === "Escape") { this.chosen = null; this.#hide(); this.#soon(); }
    else if (event.key === "Enter" && this.chosen) this.opened(this.list[this.chosen.place]);
    else return;
    event.preventDefault();
  }

  #reveal() {
    const { tall, height } = this.#layout(), { place } = this.chosen;
    const row = this.list[place], parts = this.details.pieces(row);
    this.chosen.piece = Math.max(0, Math.min(parts.length - 1, this.chosen.piece));
    const piece = parts[this.chosen.piece] ?? this.details.extent(row);
    const top = place * tall, room = height - AXIS_HEIGHT;
    if (top < this.rows.scrollTop) this.rows.scrollTop = top;
    else if (top + tall > this.rows.scrollTop + room) this.rows.scrollTop = top + tall - room;
    const base = this.relative ? this.details.extent(row).begin : 0;
    if (piece.end - base < this.view[0] || piece.begin - base > this.view[1]) {
      this.#pan(piece.begin - base - (this.view[0] + this.view[1]) / 2);
    }
    this.draw();
    const x = Math.max(this.gutter, Math.min(this.#x(piece.begin - base), this.rows.clientWidth - 8));
    const lines = this.#show(place, this.chosen.piece, x, top + tall - this.rows.scrollTop + AXIS_HEIGHT);
    document.getElementById("timeline-said").textContent = lines.join(". ");
  }
}

function lengthMark(seconds, step) {
  if (seconds === 0) return "0";
  if (step >= 86400) return `${seconds / 86400} d`;
  if (step >= 3600) return `${seconds / 3600} h`;
  return step >= 60 ? `${Math.round(seconds / 60)} min` : `${Number(seconds.toFixed(3))} s`;
}

function clockMark(seconds, step) {
  const at = new Date(seconds * 1000), text = at.toISOString();
  if (step >= 86400 || seconds % 86400 === 0) return `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}`;
  return step >= 60 ? text.slice(11, 16) : text.slice(11, step >= 1 ? 19 : 23);
}
