// Package incidents embeds the incidents of `vipwalk demo`: bundles captured
// from the project's own test cluster. index.json lists them, the first one is
// the one that a bare `demo` walks. The bundle of an incident is NAME.tar.gz or
// the folder NAME/.
package incidents

import "embed"

// FS has index.json and the bundles.
//
//go:embed *
var FS embed.FS
