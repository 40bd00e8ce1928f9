"use strict";
// Before anything is painted: light or dark as chosen here, else as the system has it.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage may be closed; the system's choice holds
}
