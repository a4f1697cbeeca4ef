//! The layers before a stand-in for the services further inside, and an upstream that has the stored objects.

mod audit;
mod bodies;
mod consistent_reads;
mod custom_resources;
mod deep_documents;
mod documents;
mod earlier;
mod evaluated_objects;
mod flow_control;
mod forged;
mod generated_names;
mod guards;
mod hot_path;
mod order;
mod past_objects;
mod patches;
mod refusals;
mod staleness;
mod test_cluster;
mod token_requests;
mod unread_resources;
mod verdicts;
mod versions;
mod world;
