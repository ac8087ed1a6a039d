package support

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
)

// Nothing that looks like a secret leaves a machine, whatever it stands in.
func TestSecretsAreHidden(t *testing.T) {
	ca, err := certs.NewCA("kubernetes", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key := string(ca.Key)
	body := strings.Split(key, "\n")[1]
	token := "eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMifQ.c2lnbmF0dXJl"
	for what, c := range map[string]struct{ text, secret string }{
		"key":         {"before\n" + key + "after", body},
		"key in JSON": {`{"tls.key":"` + strings.ReplaceAll(key, "\n", `\n`) + `"}`, body},
		"key cut off": {key[:len(key)/2], body[:20]},
		"kubeconfig":  {"client-key-data: " + base64.StdEncoding.EncodeToString(ca.Key), base64.StdEncoding.EncodeToString(ca.Key)[:60]},
		"token":       {"Authorization: Bearer " + token, "c2lnbmF0dXJl"},
		"bare token":  {token, "c2lnbmF0dXJl"},
		"bootstrap":   {"joined with abcdef.0123456789abcdef today", "0123456789abcdef"},
		"password":    {`{"password": "hunter2hunter2"}`, "hunter2"},
		"flag":        {"--token=s3cr3ts3cr3t --v=2", "s3cr3t"},
		"flag of two": {"run --db-password swordfish --v 2", "swordfish"},
		"two items":   {"args:\n- --db-password\n- swordfish\n", "swordfish"},
		"JSON items":  {`["--db-password","swordfish"]`, "swordfish"},
		"unit":        {`Environment="DB_TOKEN=swordfish"`, "swordfish"},
		"env":         {"env:\n    - name: DB_PASSWORD\n      value: sword fish\n", "fish"},
		"env in JSON": {`{"name":"apiKey","value":"sword fish"}`, "fish"},
		"basic":       {"authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpw"},
	} {
		if got := Redact(c.text); strings.Contains(got, c.secret) || !strings.Contains(got, hidden) {
			t.Errorf("%s: %s", what, got)
		}
	}
	for _, plain := range []string{
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
		"token bucket is full", "the bootstrap-token controller starts", "--client-key=/etc/kubernetes/pki/x.key --enable-bootstrap-token-auth=true",
		"env:\n- name: LOG_LEVEL\n  value: debug\n", "key=default/web msg=\"pod bound\"", "- name: keyring\n  image: x\n", "level=INFO msg=starting",
	} {
		if got := Redact(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}
