//! The layers before a stand-in for the services further inside, and an upstream that has the stored objects.

mod audit;
mod bodies;
mod hot_path;
mod patches;
mod verdicts;
mod world;
