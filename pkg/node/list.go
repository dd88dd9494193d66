package node

import "context"

// Lister lists all rules of an nft-variant iptables program in the form of
// iptables-save.
type Lister func(ctx context.Context, program string, v6 bool) (string, error)
