package inventory

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
)

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	want := Inventory{
		"n1": {
			ProviderID: ProviderID("demo", "a"),
			Roles:      []string{"node"},
			Addresses:  []string{"10.0.0.1", "fd00::1"},
			External:   []string{"203.0.113.1"},
			Region:     "eu",
			Zone:       "a",
		},
		"n2": {Roles: []string{"control-plane", "node"}, Addresses: []string{"10.0.0.2"}},
	}
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(data); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %v (%v), want %v", got, err, want)
	}
}

func TestHalfAnInventoryIsNone(t *testing.T) {
	good := map[string]string{"n1": `{"roles":["node"],"addresses":["10.0.0.1"],"providerID":"clusterctl://demo/1"}`}
	for name, c := range map[string]struct{ value, want string }{
		"not JSON":              {`{`, "unexpected EOF"},
		"empty":                 {``, "EOF"},
		"an unknown field":      {`{"roles":["node"],"addresses":["10.0.0.2"],"colour":"red"}`, "unknown field"},
		"two values":            {`{"addresses":["10.0.0.2"]} {}`, "something follows"},
		"no address":            {`{"roles":["node"]}`, "no address"},
		"a name for an address": {`{"addresses":["n2.example.org"]}`, "not an IP address"},
		"another cloud's ID":    {`{"addresses":["10.0.0.2"],"providerID":"aws:///i-1"}`, "does not begin with"},
		"another machine's ID":  {`{"addresses":["10.0.0.2"],"providerID":"clusterctl://demo/1"}`, "that of machine n1"},
		"a zone with a space":   {`{"addresses":["10.0.0.2"],"zone":"a b"}`, "valid label"},
	} {
		data := maps.Clone(good)
		data["n2"] = c.value
		if got, err := Decode(data); got != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v (%v), want an error with %q", name, got, err, c.want)
		}
	}
	for _, data := range []map[string]string{nil, {}} {
		if got, err := Decode(data); got != nil || err == nil {
			t.Errorf("an empty inventory is %v (%v)", got, err)
		}
	}
}

// A ConfigMap holds at most 1 MiB.
func TestThreeThousandMachinesFit(t *testing.T) {
	list := Inventory{}
	for i := range 3000 {
		name := fmt.Sprintf("machine-%04d.rack-12.example.org", i)
		list[name] = Machine{
			ProviderID: ProviderID("production", name),
			Roles:      []string{"node"},
			External:   []string{"203.0.113.100"},
			Addresses: []string{
				"192.168.100.100",
				"fd00:100:100:100::100",
			},
			Region: "europe-north",
			Zone:   "stockholm-1",
		}
	}
	data, err := list.Encode()
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for k, v := range data {
		size += len(k) + len(v)
	}
	if size > 1<<20 {
		t.Errorf("they take %d bytes", size)
	}
	t.Logf("%d bytes", size)
}
