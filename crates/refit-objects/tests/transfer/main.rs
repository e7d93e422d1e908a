//! State transfer: what is agreed on, what goes which way, and that nothing is lost whatever fails.

mod dry_run;
mod faults;
mod helpers;
mod lazy;
mod load;
mod negotiation;
mod records;
mod table;
