include!(concat!(env!("OUT_DIR"), "/driver.rs"));
