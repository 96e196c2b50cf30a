// Names the two lists of links for screen readers, and lets the keyboard scroll what is too wide.
document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");

function reach() {
  for (const region of document.querySelectorAll(".highlight pre, .table-wrapper")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
  }
}

reach();
addEventListener("load", reach);
addEventListener("resize", reach);
