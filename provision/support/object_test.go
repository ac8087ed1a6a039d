package support

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Values with names that indicate secrets are hidden, and the structure of an object stays.
func TestSecretsInObjectsAreHidden(t *testing.T) {
	var o map[string]any
	if err := yaml.Unmarshal([]byte(`
spec:
  automountServiceAccountToken: true
  containers:
  - name: secret-keeper
    image: keeper
    args: [--password, x, --token-file, /var/t, --api-key=abc, --verbose, --pin-code, "4711"]
    command: [sh, -c, "login --password swordfish -v"]
    env:
    - {name: DB_PASSWORD, value: x}
    - {name: dbToken, value: "many\nlines"}
    - {name: KEY_FILE, value: key.pem}
    - {name: LOG, value: debug}
    - {name: API_KEY, valueFrom: {secretKeyRef: {name: keys, key: api}}}
    - {name: KNOWN, value: before hunter2hunter2}
    ports: [{containerPort: 4711}]
  tolerations: [{key: example.com/key, operator: Exists}]
  volumes: [{name: s, secret: {secretName: s}}]
  database: {password: correct horse}
`), &o); err != nil {
		t.Fatal(err)
	}
	RedactObject(o, NewRedactor([]string{"hunter2hunter2", "4711"}))
	got, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var w map[string]any
	if err := yaml.Unmarshal([]byte(`
spec:
  automountServiceAccountToken: true
  containers:
  - name: secret-keeper
    image: keeper
    args: [--password, (hidden), --token-file, /var/t, --api-key=(hidden), --verbose, --pin-code, (hidden)]
    command: [sh, -c, "login --password (hidden) -v"]
    env:
    - {name: DB_PASSWORD, value: (hidden)}
    - {name: dbToken, value: (hidden)}
    - {name: KEY_FILE, value: key.pem}
    - {name: LOG, value: debug}
    - {name: API_KEY, valueFrom: {secretKeyRef: {name: keys, key: api}}}
    - {name: KNOWN, value: before (hidden)}
    ports: [{containerPort: (hidden)}]
  tolerations: [{key: example.com/key, operator: Exists}]
  volumes: [{name: s, secret: {secretName: s}}]
  database: {password: (hidden)}
`), &w); err != nil {
		t.Fatal(err)
	}
	want, err := yaml.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again := Redact(string(got)); again != string(got) {
		t.Errorf("as a text it is hidden differently:\n%s", again)
	}
}

func TestArgumentsWithAPasswordAreHidden(t *testing.T) {
	o := map[string]any{"command": []any{"mysqladmin", "ping", "-uroot", "-phunter2", "-port", "-p3306"},
		"args": []any{"postgres://u:hunter2@db/x"}}
	RedactObject(o, NewRedactor(nil))
	want := map[string]any{"command": []any{"mysqladmin", "ping", "-uroot", "-p" + hiddenText, "-port", "-p3306"},
		"args": []any{"postgres://u:" + hiddenText + "@db/x"}}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("got %v, want %v", o, want)
	}
}

// Passwords are also hidden if a program and its arguments are items of a list, and not one command line.
func TestPasswordsOfShortFlagsAreHiddenInLists(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"mysqladmin ping -phunter2", "mysqladmin ping -p(hidden)"},
		{"/usr/bin/sshpass -p hunter2 ssh a", "/usr/bin/sshpass -p (hidden) ssh a"},
		{"redis-cli -h r -a hunter2 ping", "redis-cli -h r -a (hidden) ping"},
		{"docker login -u me -p hunter2 r.example", "docker login -u me -p (hidden) r.example"},
		{"curl -sf -u me:hunter2 https://x", "curl -sf -u me:(hidden) https://x"},
		{"server -p 8080 -path /x -w 4", "server -p 8080 -path /x -w 4"},
		{"nginx -p /etc/nginx", "nginx -p /etc/nginx"},
		{"docker run -p 8080:80 nginx", "docker run -p 8080:80 nginx"},
	} {
		var list []any
		for item := range strings.SplitSeq(c.args, " ") {
			list = append(list, item)
		}
		o := map[string]any{"command": list}
		RedactObject(o, NewRedactor(nil))
		if got := strings.Trim(fmt.Sprint(o["command"]), "[]"); got != c.want {
			t.Errorf("%s became %s, want %s", c.args, got, c.want)
		}
	}
}
