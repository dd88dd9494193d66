// Package incidents embeds the incidents of `vipwalk demo`: bundles captured
// from the project's own test cluster (testdata/cluster, `go run ./cmd/capture`).
// index.json lists them, the first one is the one that a bare `demo` walks. The
// bundle of an incident is NAME.tar.gz, the report that it walks to
// golden/NAME.txt.
package incidents

import "embed"

// FS has index.json and the bundles.
//
//go:embed index.json *.tar.gz
var FS embed.FS
