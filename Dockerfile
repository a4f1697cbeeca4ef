# A static binary and nothing else: no shell, no package manager, no libc.
#
#   docker build -t fairgate .
#   docker run --rm fairgate demo

FROM rust:1.95-alpine AS build
# A C compiler and libc's headers, for the cryptography; protoc, for etcd.
RUN apk add --no-cache build-base protoc protobuf-dev
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
# Cargo wants to see the benches and tests that Cargo.toml names.
COPY benches benches
COPY crates crates
COPY examples examples
COPY tests tests
COPY src src
# On Alpine the target is musl, which Rust links statically.
RUN cargo build --release --locked --features etcd \
    && mkdir -p /rootfs/data && cp target/release/fairgate /rootfs/fairgate

FROM scratch
COPY --from=build --chown=65532:65532 /rootfs /
# Where a gateway without a configuration keeps what it needs.
WORKDIR /data
# Nobody in particular; config/kubernetes uses the same number.
USER 65532:65532
# Clients, and operators: see listen.address and admin.address.
EXPOSE 8443 9080
ENTRYPOINT ["/fairgate"]
CMD ["serve"]
