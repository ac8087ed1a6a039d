package config

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Dashboard configures the dashboard of the cluster. Visitors sign in with tokens.
type Dashboard struct {
	Kubeconfig           string   `flag:"kubeconfig" help:"CA and address of the API server; its credentials are not used"`
	APIServers           []string `flag:"api-servers" help:"host:port of every API server, tried in turn; the kubeconfig's server when empty"`
	CertificateAuthority string   `flag:"certificate-authority" help:"CA of the API servers, in place of a kubeconfig"`
	BindAddress          string   `flag:"bind-address" help:"address to serve visitors on"`
	SecurePort           int      `flag:"secure-port" help:"port to serve visitors on; 0 takes a free one"`
	TLSCertFile          string   `flag:"tls-cert-file" help:"server certificate; a self-signed one when empty"`
	TLSPrivateKeyFile    string   `flag:"tls-private-key-file" help:"server key"`
	Hostnames            []string `flag:"hostnames" help:"names and addresses that visitors use, besides those of the certificate; requests for others are refused"`
	ClusterName          string   `flag:"cluster-name" help:"name of the cluster, for visitors"`
	HealthAddress        string   `flag:"health-address" help:"host:port to serve health and metrics on; none when empty"`
}

// DefaultDashboard returns the documented defaults.
func DefaultDashboard() Dashboard {
	return Dashboard{BindAddress: "0.0.0.0", SecurePort: 10264, ClusterName: "kubernetes",
		HealthAddress: "127.0.0.1:10265"}
}

func (d *Dashboard) problems() (list []Problem) {
	if d.Kubeconfig == "" && (len(d.APIServers) == 0 || d.CertificateAuthority == "") {
		list = append(list, Problem{Name: "kubeconfig",
			Text: "give a kubeconfig, or the API servers and their certificate authority"})
	}
	if (d.TLSCertFile == "") != (d.TLSPrivateKeyFile == "") {
		list = append(list, Problem{Name: "tls-cert-file", Text: "the certificate and the key are given together"})
	}
	for _, name := range d.Hostnames {
		if validation.IsDNS1123Subdomain(name) != nil && validation.IsValidIP(nil, name) != nil {
			list = append(list, Problem{Name: "hostnames", Text: fmt.Sprintf("%q is not a name or an address", name)})
		}
	}
	return append(list, addresses(map[string]string{"health-address": d.HealthAddress})...)
}
