package walk

import (
	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

func reportFrontend(f proxy.Frontend) diagnosis.Frontend {
	d := diagnosis.Frontend{
		Kind: diagnosis.FrontendKind(f.Kind), Port: f.Port, Protocol: string(f.Protocol),
		Name: f.PortName, TargetPort: f.TargetPort.String(),
	}
	if f.IP.IsValid() {
		d.IP = f.IP.String()
	}
	return d
}
