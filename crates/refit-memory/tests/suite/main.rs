//! One suite for every implementation of a file cache, and for physical memory beneath it.

mod anonymous;
mod composition;
mod conformance;
mod faults;
mod host;
mod lazy;
mod model;
mod races;
mod reclaim;
mod stress;
mod transfer;
