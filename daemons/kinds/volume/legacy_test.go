package volume

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// legacyRows have sources as JSON with the fields that are refused, and the beginning of each message.
var legacyRows = []struct{ source, refused string }{
	{`{"gcePersistentDisk": {"pdName": "a", "partition": 255}}`, ""},
	{`{"gcePersistentDisk": {"partition": 256}}`,
		"gcePersistentDisk.pdName Required, gcePersistentDisk.partition must be between 1 and 255, inclusive"},
	{`{"awsElasticBlockStore": {"partition": -1}}`,
		"awsElasticBlockStore.volumeID Required, awsElasticBlockStore.partition must be between"},
	{`{"glusterfs": {}}`, "glusterfs.endpoints Required, glusterfs.path Required"},
	{`{"rbd": {"monitors": ["a"], "image": "b"}}`, ""},
	{`{"rbd": {}}`, "rbd.monitors Required, rbd.image Required"},
	{`{"cephfs": {}}`, "cephfs.monitors Required"},
	{`{"cinder": {"secretRef": {}}}`, "cinder.volumeID Required, cinder.secretRef.name Required"},
	{`{"azureFile": {}}`, "azureFile.secretName Required, azureFile.shareName Required"},
	{`{"vsphereVolume": {}}`, "vsphereVolume.volumePath Required"},
	{`{"photonPersistentDisk": {}}`, "photonPersistentDisk.pdID Required"},
	{`{"portworxVolume": {}}`, "portworxVolume.volumeID Required"},
	{`{"scaleIO": {}}`, "scaleIO.gateway Required, scaleIO.system Required, scaleIO.volumeName Required"},
	{`{"iscsi": {"targetPortal": "a:3260", "iqn": "iqn.2015-06.com.example.test:tgt1"}}`, ""},
	{`{"iscsi": {"targetPortal": "a:3260", "iqn": "eui.0123456789abcdef", "lun": 255,
		"initiatorName": "naa.60014051234567890123456789012345"}}`, ""},
	{`{"iscsi": {"lun": 256}}`,
		"iscsi.targetPortal Required, iscsi.iqn Required, iscsi.lun must be between 0 and 255, inclusive"},
	{`{"iscsi": {"targetPortal": "a", "iqn": "tgt1"}}`, "iscsi.iqn must be valid format starting with iqn"},
	{`{"iscsi": {"targetPortal": "a", "iqn": "iqn.2015-06.com.example"}}`, "iscsi.iqn must be valid format"},
	{`{"iscsi": {"targetPortal": "a", "iqn": "eui.01", "initiatorName": "naa.01"}}`,
		"iscsi.iqn must be valid format, iscsi.initiatorname must be valid format"},
	{`{"iscsi": {"targetPortal": "a", "iqn": "eui.0123456789abcdef", "chapAuthSession": true}}`,
		"iscsi.secretRef Required"},
	{`{"flocker": {"datasetUUID": "a"}}`, ""},
	{`{"flocker": {}}`, "flocker one of datasetName and datasetUUID is required"},
	{`{"flocker": {"datasetName": "a/b", "datasetUUID": "c"}}`,
		"flocker datasetName and datasetUUID can not, flocker.datasetName must not contain '/'"},
	{`{"quobyte": {"registry": "a:1,[::1]:2", "volume": "v"}}`, ""},
	{`{"quobyte": {"registry": "a:1,b", "tenant": "` + strings.Repeat("t", 65) + `"}}`,
		"quobyte.registry must be a host:port pair, quobyte.tenant must be a UUID, quobyte.volume Required"},
	{`{"quobyte": {"volume": "v"}}`, "quobyte.registry must be a host:port pair"},
	{`{"fc": {"wwids": ["a"]}}`, ""},
	{`{"fc": {}}`, "fc.targetWWNs must specify either"},
	{`{"fc": {"targetWWNs": ["a"], "wwids": ["b"]}}`, "fc.targetWWNs must specify either, fc.lun lun is required"},
	{`{"fc": {"targetWWNs": ["a"], "lun": -1}}`, "fc.lun must be between 0 and 255"},
	{`{"flexVolume": {"driver": "example.com/d", "options": {"example.com/a": "b", "notkubernetes.io": "c"}}}`, ""},
	{`{"flexVolume": {"options": {"pod.Kubernetes.io/name": "a"}}}`,
		"flexVolume.driver Required, flexVolume.options[pod.Kubernetes.io/name] kubernetes.io and k8s.io"},
	{`{"azureDisk": {"diskName": "a", "diskURI": "/subscriptions/b", "kind": "Managed", "cachingMode": "None"}}`, ""},
	{`{"azureDisk": {"kind": "Wild", "cachingMode": "Wild", "diskURI": "https://a"}}`,
		"azureDisk.diskName Required, azureDisk.cachingMode supported values, azureDisk.kind supported values"},
	{`{"azureDisk": {"diskName": "a", "diskURI": "https://b", "kind": "Managed"}}`, "azureDisk.diskURI supported values"},
	{`{"azureDisk": {"diskName": "a", "diskURI": "/subscriptions/b", "kind": "Shared"}}`,
		"azureDisk.diskURI supported values"},
	{`{"storageos": {"volumeName": "a"}}`, ""},
	{`{"storageos": {"volumeNamespace": "B"}}`,
		"storageos.volumeName Required, storageos.volumeNamespace a lowercase RFC 1123 label"},
}

// Persistent volumes have the same rules, and only few of the fields have other types.
func TestLegacyVolumesHaveTheirFields(t *testing.T) {
	for _, row := range legacyRows {
		var v corev1.VolumeSource
		if err := json.Unmarshal([]byte(row.source), &v); err != nil {
			t.Fatal(err)
		}
		checkLegacy(t, "pod", row.source, row.refused, &v)
		var persistent corev1.PersistentVolumeSource
		if err := json.Unmarshal([]byte(row.source), &persistent); err != nil {
			t.Fatal(err)
		}
		checkLegacy(t, "persistent volume", row.source, row.refused, LegacyOfPersistent(&persistent))
	}
}

func checkLegacy(t *testing.T, subject, source, refused string, v *corev1.VolumeSource) {
	t.Helper()
	errs := ValidateLegacy(v, nil)
	var rows []string
	if refused != "" {
		for row := range strings.SplitSeq(strings.ReplaceAll(refused, ", inclusive", ""), ", ") {
			rows = append(rows, row)
		}
	}
	if len(errs) != len(rows) {
		t.Errorf("%s %s: %v, want %q", subject, source, errs, rows)
		return
	}
	for _, row := range rows {
		name, message, _ := strings.Cut(row, " ")
		if !slices.ContainsFunc(errs, func(e *field.Error) bool {
			text := e.Error()
			return strings.HasPrefix(text, name+": ") && strings.Contains(text, message)
		}) {
			t.Errorf("%s %s: %v, want %q", subject, source, errs, row)
		}
	}
}
