package certificate

import (
	"path"
	"strings"

	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// Name returns the name that users know a certificate by, as in kubeadm: apiserver, etcd-server, admin.conf.
func Name(file string) string {
	file = strings.TrimPrefix(strings.TrimPrefix(file, role.Kubernetes+"/"), path.Base(role.PKI)+"/")
	return strings.ReplaceAll(strings.TrimSuffix(file, ".crt"), "/", "-")
}

// File returns the certificate file of a step, or "" if the step has none.
func File(s step.Step) string {
	switch s := s.(type) {
	case *step.Certificate:
		return s.Path + ".crt"
	case *step.Kubeconfig:
		return s.Path
	}
	return ""
}
