//! Nothing: see the folder `benches`.
