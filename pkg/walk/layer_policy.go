package walk

// policyChecks are layer 4: NetworkPolicy, for the client and each backend.
var policyChecks = []*Check{}

// policyLayer is what the policy checks share of one Service.
type policyLayer struct{}

func summarisePolicy(p *Pass) Summary { return Summary{} }
