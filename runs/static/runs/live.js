// Follows a run's events and refreshes the parts of the page that changed. Without it the page is complete, only still.
"use strict";
(() => {
  const root = document.querySelector("[data-live-events]");
  if (!root || !window.EventSource) return;
  const state = () => root.querySelector("[data-live-state]");
  const isFinal = () => state().dataset.final === "yes";
  if (isFinal()) return;

  const WAIT_MS = 80; // Events come in groups; one look after the last of them is enough.
  let timer = null, loading = false, again = false;

  // The CSRF token is masked anew for every answer and is no change.
  const text = (node) => node.outerHTML.replace(/name="csrfmiddlewaretoken" value="[^"]*"/g, "");
  const isBusy = (node) => [...node.querySelectorAll("input:not([type=hidden]), textarea, select")].some(
    (field) => field === document.activeElement || (field.type === "checkbox" || field.type === "radio"
      ? field.checked !== field.defaultChecked
      : field.tagName === "SELECT" ? [...field.options].some((o) => o.selected !== o.defaultSelected) : field.value !== field.defaultValue));
  const shape = (node) => text(node).replace(/ open=""/g, "").replace(/ x-fresh/g, "");

  function replace(old, fresh) {
    for (const details of old.querySelectorAll("details[data-key]")) {
      const twin = fresh.querySelector(`details[data-key="${CSS.escape(details.dataset.key)}"]`);
      if (twin) twin.open = details.open;
    }
    if (shape(old) === shape(fresh)) return;
    if (isBusy(old)) return keep(old, fresh);
    const focused = old.contains(document.activeElement);
    old.replaceWith(fresh);
    fresh.classList.add("x-fresh");
    if (focused) { fresh.tabIndex = -1; fresh.focus(); }
  }

  // What a person has typed stays; the server checks it against the truth when it is sent.
  function keep(old, fresh) {
    const gone = fresh.querySelectorAll("form").length < old.querySelectorAll("form").length;
    if (!gone || old.querySelector("[data-stale]")) return;
    const note = document.createElement("p");
    note.className = "x-error";
    note.dataset.stale = "";
    note.setAttribute("role", "status");
    note.textContent = "This changed meanwhile. What you have typed is kept; reload the page to see the change.";
    old.prepend(note);
  }

  async function refresh() {
    if (loading) { again = true; return; }
    loading = true;
    try {
      const answer = await fetch(root.dataset.livePage, { credentials: "same-origin", headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return stop();
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const fresh of page.querySelectorAll("[data-live]")) {
        const old = root.querySelector(`[data-live="${fresh.dataset.live}"]`);
        if (old) replace(old, document.adoptNode(fresh));
      }
      const now = page.querySelector("[data-live-state]");
      if (now) Object.assign(state().dataset, now.dataset);
      if (isFinal()) stop();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // the network: the stream's next word brings another try
    } finally {
      loading = false;
      if (again) { again = false; soon(); }
    }
  }
  function soon() { clearTimeout(timer); timer = setTimeout(refresh, WAIT_MS); }

  const stream = new EventSource(root.dataset.liveEvents);
  function stop() { stream.close(); clearTimeout(timer); }
  const seen = (event) => { if (Number(event.lastEventId || 0) > Number(state().dataset.seq)) soon(); };
  stream.addEventListener("message", seen);
  for (const kind of root.dataset.liveKinds.split(",")) stream.addEventListener(kind, seen);
  stream.addEventListener("error", soon); // also the end of the stream: the page then says that the run is final
  window.addEventListener("pagehide", () => stream.close());
})();
