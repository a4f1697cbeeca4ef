# An image with one static binary: no shell, no package manager, no libc.
#
#   docker build -t fairgate .
#   docker run --rm fairgate demo

FROM rust:1.95-alpine AS build
# A C compiler, make and the headers of libc for the cryptography library and the allocator; protoc for the
# etcd client.
RUN apk add --no-cache build-base protoc protobuf-dev
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
# Cargo requires all members of the workspace, and the benches, examples and tests that Cargo.toml names.
COPY .cargo .cargo
COPY benches benches
COPY crates crates
COPY examples examples
COPY fuzz fuzz
COPY loadtest loadtest
COPY tests tests
COPY src src
# The target on Alpine is musl, which Rust links statically.
RUN cargo build --profile dist --locked --features etcd \
    && mkdir -p /rootfs/data && cp target/dist/fairgate /rootfs/fairgate

FROM scratch
COPY --from=build --chown=65532:65532 /rootfs /
# A gateway without a configuration keeps its files here.
WORKDIR /data
# An unprivileged user; the manifests in config/kubernetes use the same ID.
USER 65532:65532
# For clients (listen.address) and operators (admin.address).
EXPOSE 8443 9080
ENTRYPOINT ["/fairgate"]
CMD ["serve"]
