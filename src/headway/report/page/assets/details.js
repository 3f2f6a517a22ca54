// Attempts and pieces of the jobs that the file keeps in detail, and the panel of one job.

class Details {
  constructor(jobs, about, tables) {
    Object.assign(this, { jobs, about, ...tables });
    this.places = new Map();
    let attempt = 0, piece = 0;
    for (let at = 0; at < this.counts.rows; at++) {
      this.places.set(this.counts.row[at], { attempt, attempts: this.counts.attempts[at], piece, pieces: this.counts.pieces[at] });
      attempt += this.counts.attempts[at];
      piece += this.counts.pieces[at];
    }
    this.kept = new Map();
  }

  has(row) {
    return this.places.has(row);
  }

  extent(row) {
    const place = this.places.get(row), begin = this.jobs.begin[row];
    if (place.end === undefined) {
      place.end = begin;
      for (let i = place.piece; i < place.piece + place.pieces; i++) place.end += this.seconds.seconds[i];
    }
    return { begin, end: place.end };
  }

  // The pieces of a job lie end to end, from its first event on.
  pieces(row) {
    let found = this.kept.get(row);
    if (!found) {
      const { piece, pieces } = this.places.get(row), table = this.seconds, { words } = this.about;
      found = [];
      let at = this.jobs.begin[row];
      for (let i = piece; i < piece + pieces; i++) {
        const end = at + table.seconds[i];
        found.push({
          begin: at, end, attempt: table.attempt[i], phase: words.phases[table.phase[i] - 1],
          verdict: words.verdicts[table.verdict[i] - 1], cause: words.causes[table.cause[i] - 1] ?? "",
        });
        at = end;
      }
      if (this.kept.size > 4000) this.kept.clear(); // rows in sight come back at once
      this.kept.set(row, found);
    }
    return found;
  }

  attempts(row) {
    const { attempt, attempts } = this.places.get(row);
    return Array.from({ length: attempts }, (_, at) => attempt + at);
  }

  // What a piece is, in lines of words.
  tell(row, at) {
    const piece = this.pieces(row)[at], { tick, origin, words } = this.about;
    const outcome = this.jobs.word("outcome", row);
    if (!piece) return [`${this.jobs.id(row)}: ${outcome}`];
    const place = this.places.get(row);
    const site = piece.attempt ? this.tries.words.site[this.tries.site[place.attempt + piece.attempt - 1]] : "";
    const courier = piece.phase === "delivery" || piece.phase === "prefetch";
    const worth = { good: "goodput", bad: `badput: ${piece.cause}`, open: "not decided yet", none: courier ? "on a transfer slot" : "no slot held" };
    const day = (ticks) => Math.floor((origin + ticks * tick + this.about.zone) / 86400);
    const sameDay = day(piece.begin) === day(piece.end);
    const where = piece.attempt ? `attempt ${piece.attempt}${site ? ` at ${site}` : ""}` : courier ? "a courier" : "no attempt";
    return [
      `${this.jobs.id(row)} (${outcome}), ${where}`,
      `${words.phase_words[piece.phase]} for ${span((piece.end - piece.begin) * tick)}, ${worth[piece.verdict]}`,
      `${moment(origin + piece.begin * tick, this.about)} to ${moment(origin + piece.end * tick, this.about, !sameDay)}`,
    ];
  }
}

class JobPanel {
  constructor(jobs, about) {
    Object.assign(this, { jobs, about, details: null });
    this.dialog = document.getElementById("job");
    this.inside = document.getElementById("job-inside");
    // A click beside the panel closes it, as Escape does.
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
  }

  open(row) {
    const { jobs } = this;
    const facts = [
      jobs.params && jobs.word("params", row), jobs.word("outcome", row), jobs.word("user", row) && `user ${jobs.word("user", row)}`,
      jobs.word("site", row) && `last at ${jobs.word("site", row)}`,
      jobs.log && jobs.word("log", row),
      jobs.return[row] ? `returned ${jobs.return[row] - 1}` : "",
    ].filter(Boolean).join(" · ");
    const times = `${span(jobs.seconds("slot", row))} of slot time in ${plural(jobs.attempts[row], "attempt")}: `
      + `${span(jobs.seconds("compute", row))} compute, ${jobs.about.moved ? `${span(jobs.seconds("transfer", row))} input transfers, ` : ""}`
      + `${span(jobs.seconds("bad", row))} lost. First event ${moment(jobs.begin_at(row), this.about)}.`;
    const parts = [
      element("h2", { id: "job-title", text: `Job ${jobs.id(row)}` }),
      element("p", { class: "quiet", text: facts }), element("p", { text: times }),
    ];
    if (jobs.reason[row]) {
      const code = jobs.code[row] ? ` (code ${jobs.code[row] - 1})` : "";
      parts.push(element("p", {}, `Last hold${code}: `, element("bdi", { text: jobs.word("reason", row) })));
    }
    if (this.details?.has(row)) parts.push(this.#bar(row), this.#table(row));
    else parts.push(element("p", { class: "note", text: "This file does not keep the attempts of this job; --csv and --parquet do." }));
    this.inside.replaceChildren(...parts);
    this.dialog.showModal();
    this.#paint(row);
  }

  #bar() {
    return element("canvas", { id: "job-bar", "aria-hidden": "true" });
  }

  #paint(row) {
    const canvas = document.getElementById("job-bar");
    if (!canvas) return;
    const scale = devicePixelRatio || 1, width = canvas.clientWidth, pen = canvas.getContext("2d");
    canvas.width = width * scale;
    canvas.height = 24 * scale;
    pen.scale(scale, scale);
    const fills = paints(this.about, scale), { begin, end } = this.details.extent(row);
    const x = (ticks) => ((ticks - begin) / Math.max(1, end - begin)) * width;
    for (const piece of this.details.pieces(row)) {
      pen.fillStyle = fills[piece.phase][piece.verdict];
      const thin = NO_SLOT.has(piece.phase);
      pen.fillRect(x(piece.begin), thin ? 10 : 0, Math.max(0.75, x(piece.end) - x(piece.begin)), thin ? 4 : 24);
    }
  }

  #table(row) {
    const { tries } = this.details, { tick, origin, words } = this.about;
    const lengths = ["slot", ...(this.about.moved ? ["transfer_in"] : []), "compute", "bad"];
    const names = { slot: "slot time", transfer_in: "transfer in", compute: "compute", bad: "lost" };
    const head = ["", "site and machine", "began", ...lengths.map((name) => names[name]), "ended by", "code", "reason"];
    const lines = this.details.attempts(row).map((at, place) => {
      const length = (name) => span(tries[name][at] * tick);
      const ending = tries.words.ending[tries.ending[at]];
      const where = [...new Set([tries.words.site[tries.site[at]], tries.words.machine[tries.machine[at]]])].filter(Boolean);
      const code = tries.code[at] ? `${tries.code[at] - 1}${tries.subcode[at] ? `/${tries.subcode[at] - 1}` : ""}` : "";
      const cells = [
        element("td", { class: "where" }, ...(where.length ? where : [UNKNOWN]).map((text) => element("div", { text }))),
        element("td", { class: "when", text: moment(origin + tries.begin[at] * tick, this.about) }),
        ...lengths.map((name) => element("td", { class: "when", text: length(name) })),
        element("td", { class: "where", text: words.endings[ending] ?? ending }),
        element("td", { class: "when", text: code }),
        element("td", { class: "long", text: tries.words.reason[tries.reason[at]] }),
      ];
      return element("tr", {}, element("th", { scope: "row", text: place + 1 }), ...cells);
    });
    const table = element("table", {},
      element("caption", { text: `Attempts of job ${this.jobs.id(row)}` }),
      element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col", text })))),
      element("tbody", {}, ...lines));
    return element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Attempts" }, table);
  }
}
