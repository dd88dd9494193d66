// Package cluster collects the Kubernetes objects of a walk from the API
// server. It knows where facts come from and judges none of them. It only
// reads: see Guard.
package cluster
