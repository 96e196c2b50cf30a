// Draws the Mermaid diagrams of a page, and again when the reader changes to dark or light.
const sources = [...document.querySelectorAll(".highlight-mermaid")].map((block) => [
  block,
  block.querySelector("pre").textContent,
]);
const dark = window.matchMedia("(prefers-color-scheme: dark)");

async function draw() {
  const theme = document.body.dataset.theme;
  const isDark = theme === "dark" || (theme !== "light" && dark.matches);
  mermaid.initialize({ startOnLoad: false, theme: isDark ? "dark" : "neutral" });
  for (const [number, [block, source]] of sources.entries()) {
    const { svg } = await mermaid.render(`diagram-${number}`, source);
    block.innerHTML = svg;
  }
}

draw();
dark.addEventListener("change", draw);
new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-theme"] });
