"""Functions: bundles of a manifest and a WebAssembly module, stored under the CID of their content."""
