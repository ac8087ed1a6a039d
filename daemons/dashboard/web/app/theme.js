// Applies the chosen colours before the first paint. Without a choice, the style sheet follows the system's setting.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem('theme');
  } catch {
    // Storage is disabled: the system's setting applies.
  }
  if (chosen === 'light' || chosen === 'dark') {
    document.documentElement.dataset.theme = chosen;
  }
})();
