// Package objects reads Kubernetes objects from files: YAML and JSON, one or
// many documents, Lists in any arrangement, as `kubectl get -o yaml`,
// `kubectl cluster-info dump` and manifests have them.
package objects
