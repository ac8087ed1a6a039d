package support

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
)

// Text that looks like a secret is hidden before it leaves a machine, in any context.
//
//style:long a table of secrets and of other text
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
		"kubeconfig": {"client-key-data: " + base64.StdEncoding.EncodeToString(ca.Key),
			base64.StdEncoding.EncodeToString(ca.Key)[:60]},
		"token":            {"Authorization: Bearer " + token, "c2lnbmF0dXJl"},
		"bare token":       {token, "c2lnbmF0dXJl"},
		"bootstrap":        {"joined with abcdef.0123456789abcdef today", "0123456789abcdef"},
		"password":         {`{"password": "hunter2hunter2"}`, "hunter2"},
		"flag":             {"--token=s3cr3ts3cr3t --v=2", "s3cr3t"},
		"flag of two":      {"run --db-password swordfish --v 2", "swordfish"},
		"two items":        {"args:\n- --db-password\n- swordfish\n", "swordfish"},
		"JSON items":       {`["--db-password","swordfish"]`, "swordfish"},
		"unit":             {`Environment="DB_TOKEN=swordfish"`, "swordfish"},
		"env":              {"env:\n    - name: DB_PASSWORD\n      value: sword fish\n", "fish"},
		"env in JSON":      {`{"name":"apiKey","value":"sword fish"}`, "fish"},
		"URL":              {"DATABASE_URL=postgres://u:hunter2@db:5432/shop", "hunter2"},
		"URL in JSON":      {`{"url":"amqp://me:hunter2@mq/"}`, "hunter2"},
		"URL without user": {"redis://:hunter2@redis:6379/0", "hunter2"},
		"URL with signs":   {"mysql://u:hun@ter/2@db/x", "ter/2"},
		"URL with a token": {"git clone https://0123456789abcdef0123456789abcdef01234567@git.example/x.git",
			"0123456789abcdef0123"},
		"URL of a driver":    {"dsn: mongodb+srv://u:hunter2@c0.example.net/?w=1", "hunter2"},
		"query":              {"https://b.example/x?X-Amz-Signature=0123456789abcdef&x=1", "0123456789abcdef"},
		"mysql":              {"mysqldump -h db -uroot -phunter2 shop", "hunter2"},
		"mysql in a list":    {"command:\n- mysqladmin\n- ping\n- -phunter2\n", "hunter2"},
		"mysql in JSON":      {`["mysqladmin","ping","-phunter2"]`, "hunter2"},
		"sshpass":            {"sshpass -p hunter2 ssh a@b", "hunter2"},
		"redis-cli":          {"redis-cli -h r -a hunter2 ping", "hunter2"},
		"curl":               {"curl -sf -u me:hunter2 https://x", "hunter2"},
		"curl long":          {"curl --user=me:hunter2 https://x", "hunter2"},
		"ldap":               {"ldapsearch -x -D cn=a -w hunter2 -b dc=x", "hunter2"},
		"docker login":       {"docker login -u me -p hunter2 registry.example", "hunter2"},
		"GitHub":             {"using ghp_0123456789abcdefghijABCDEFGHIJ012345 now", "0123456789abc"},
		"GitHub's fine ones": {"github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz", "mnopqrst"},
		"GitLab":             {"glpat-AbCdEfGhIjKlMnOpQrSt", "AbCdEfGh"},
		"AWS":                {"id AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7"},
		"Slack":              {"xoxb-123456789012-abcdefABCDEF", "abcdefABCDEF"},
		"Slack's hooks":      {"https://hooks.slack.com/services/T000/B000/XXXXsecretXXXX", "XXXXsecret"},
		"Stripe":             {"sk_live_0123456789abcdefABCDEF", "0123456789abcdef"},
		"OpenAI":             {"sk-proj-0123456789abcdefABCDEF_x", "0123456789abcdef"},
		"Google":             {"AIzaSyA0123456789abcdefghijklmnopqrstuv", "A0123456789"},
		"Vault":              {"hvs.CAESIJ0123456789abcdefABCDEF", "0123456789abcdef"},
		"Docker Hub":         {"dckr_pat_0123456789abcdefABCDEF", "0123456789abcdef"},
		"SendGrid": {"SG.0123456789abcdefABCDEF.0123456789abcdefABCDEF0123456789abcdefABCDE",
			"abcdefABCDEF"},
		"shadow":               {"root:$6$salt$0123456789abcdefghijklmnopqrstuvwxyz./:19000:0", "0123456789abcdef"},
		"htpasswd":             {"me:$2y$10$0123456789abcdefghijkl.mnopqrstuvwxyzABCDEFGHIJKLMNO", "mnopqrst"},
		"docker configuration": {`{"auths":{"r.example":{"auth":"bWU6aHVudGVyMg=="}}}`, "bWU6aHVudGVy"},
		"Azure's": {"AccountName=x;AccountKey=0123456789abcdefABCDEF==;EndpointSuffix=core",
			"0123456789abcdef"},
		"basic": {"authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpw"},
	} {
		if got := Redact(c.text); strings.Contains(got, c.secret) || !strings.Contains(got, hiddenText) {
			t.Errorf("%s: %s", what, got)
		}
	}
	for _, plain := range []string{
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
		"--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
		"token bucket is full", "the bootstrap-token controller starts", "--client-key=/etc/kubernetes/pki/x.key " +
			"--enable-bootstrap-token-auth=true",
		"env:\n- name: LOG_LEVEL\n  value: debug\n", "key=default/web msg=\"pod " +
			"bound\"", "- name: keyring\n  image: x\n", "level=INFO msg=starting",
		"http://10.0.0.1:8080/x?mail=a@b.example", "ssh://git@git.example/x", "https://registry.example:5000/v2/",
		"- -port\n- -p8080\n- -path=/x\n", "mysql -u root -P 3306", "nginx -p /etc/nginx",
		"see me@example.com: it is ask_live_now", "the desk-job-with-a-very-long-name-indeed runs",
		"git@github.com:a/b.git",
	} {
		if got := Redact(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}
