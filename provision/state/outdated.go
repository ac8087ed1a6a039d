package state

import (
	"slices"

	"clusterctl/certs"
	"clusterctl/provision/host"
)

// LaterSecrets returns what a machine of the cluster holds that this state does not know. The machine must have
// received it from a later state. A state is always written before its content goes to machines, so interrupted runs do
// not cause this.
func (s *State) LaterSecrets(g host.SecretDigests) (later []string) {
	for _, name := range []string{certs.ClusterCA, certs.EtcdCA, certs.FrontProxyCA} {
		if d := g.Signers[name]; d != "" &&
			!s.hasSigner(d, s.Keys.CAs[name], s.Keys.Next[name], s.Rotations[name].Peer) {
			later = append(later, "the key of the authority "+name)
		}
	}
	if d := g.Signers[host.ServiceAccountKey]; d != "" &&
		!s.hasSigner(d, s.Keys.ServiceAccount, s.Keys.Next[ServiceAccount], s.Rotations[ServiceAccount].Peer) {
		later = append(later, "the key that signs service accounts' tokens")
	}
	for _, d := range g.Encryption {
		if !slices.ContainsFunc(slices.Concat(s.Keys.Encryption.Keys, s.Keys.Encryption.Former),
			func(k EncryptionKey) bool { return host.KeyDigest(k.Secret) == d }) {
			later = append(later, "a key that values in the store are encrypted with")
			break
		}
	}
	for _, serial := range g.Revoked {
		if !slices.ContainsFunc(s.Revoked, func(r certs.Revoked) bool { return r.Serial == serial }) {
			later = append(later, "that the certificate "+serial+" is revoked")
		}
	}
	return later
}

func (s *State) hasSigner(digest string, certificates ...[]byte) bool {
	return slices.ContainsFunc(certificates, func(text []byte) bool { return host.SignerDigest(text) == digest })
}
