package main

import (
	"encoding/base64"
	"strings"
	"testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
	"clusterctl/provision/support"
)

// A support bundle contains neither the cluster's keys nor sensitive values of the present configuration or of the last
// applied one.
func TestSupportBundlesHideTheSecretsOfTheCluster(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	s := &state.State{Keys: state.Keys{
		CAs: map[string][]byte{
			"kubernetes": []byte(
				"-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\nByqGSM49AgEG\n-----END PRIVATE KEY-----\n"),
		},
		ServiceAccount: []byte("-----BEGIN PRIVATE KEY-----\nCCqGSM49AwEH\n-----END PRIVATE KEY-----\n"),
		Encryption:     state.Encryption{Former: []state.EncryptionKey{{Name: "k", Secret: secret}}},
		Secrets:        []string{"former swordfish"},
	}}
	redactor := support.NewRedactor(knownSecrets(s, &config.Cluster{Secrets: []string{"present\nhaddock"}}))
	for _, shown := range []string{"ByqGSM49AgEG", "CCqGSM49AwEH", base64.StdEncoding.EncodeToString(secret),
		"former\n    swordfish", "haddock"} {
		if got := redactor.Hide("x: " + shown + "\n"); strings.Contains(got, shown) || !strings.HasPrefix(got, "x: ") {
			t.Errorf("%q: %q", shown, got)
		}
	}
	if armour := "-----BEGIN CERTIFICATE-----"; redactor.Hide(armour) != armour {
		t.Error("a certificate is hidden")
	}
	if list := knownSecrets(nil, &config.Cluster{Secrets: []string{"a"}}); len(list) != 1 {
		t.Errorf("without a cluster: %q", list)
	}
}
