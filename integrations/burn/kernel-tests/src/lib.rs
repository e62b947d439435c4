//! Nothing: see the folder `tests`.
