//! grpc.
