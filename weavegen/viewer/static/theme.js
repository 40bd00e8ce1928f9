"use strict";
// Before the first paint: light or dark as chosen in the viewer, otherwise as in the system settings.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // without storage, the system settings apply
}
