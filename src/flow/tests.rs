//! Whole lives of queues, made up at random.
