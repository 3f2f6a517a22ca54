// The theme: as the system has it, light, or dark; kept where the browser lets us keep it.

const THEMES = [["", "as the system"], ["light", "light"], ["dark", "dark"]];

function setUpTheme(changed) {
  const button = document.getElementById("theme");
  let kept = "";
  try { kept = localStorage.getItem("headway-theme") ?? ""; } catch { /* not allowed here */ }
  let at = Math.max(0, THEMES.findIndex(([name]) => name === kept));
  const show = () => {
    const [name, words] = THEMES[at];
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    button.textContent = `Theme: ${words}`;
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    at = (at + 1) % THEMES.length;
    show();
    try { localStorage.setItem("headway-theme", THEMES[at][0]); } catch { /* not allowed here */ }
    changed();
  });
  show();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}

// A custom property as a colour that a canvas takes.
function colour(name) {
  const probe = element("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
