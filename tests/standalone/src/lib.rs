//! Every case that source without a runtime can be made of.
#![no_std]
#![deny(unused)]
#![allow(missing_docs, reason = "generated modules have names alone")]

include!(concat!(env!("OUT_DIR"), "/cases.rs"));
