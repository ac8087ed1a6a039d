package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	securityconfig "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/admission/api/load"
)

// podSecurityName is the name of the only plugin that a file configures.
const podSecurityName = "PodSecurity"

// podSecurityConfiguration returns the configuration of pod security from an AdmissionConfiguration file: the levels
// for namespaces without labels, and the exemptions. It returns the defaults if the file name is empty.
func podSecurityConfiguration(file string) (*securityconfig.PodSecurityConfiguration, error) {
	if file == "" {
		return load.LoadFromData(nil)
	}
	c, err := decodePodSecurity(file)
	if err != nil {
		return nil, fmt.Errorf("read the admission configuration %s: %w", file, err)
	}
	return c, nil
}

func decodePodSecurity(file string) (*securityconfig.PodSecurityConfiguration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), text)
	if err != nil {
		return nil, err
	}
	configuration, ok := obj.(*apiserver.AdmissionConfiguration)
	if !ok {
		return nil, fmt.Errorf("it is a %s", obj.GetObjectKind().GroupVersionKind().Kind)
	}
	var inner []byte
	var seen []string
	for _, p := range configuration.Plugins {
		switch {
		case slices.Contains(seen, p.Name):
			return nil, fmt.Errorf("it configures %s twice", p.Name)
		case p.Name != podSecurityName:
			return nil, fmt.Errorf("it configures %q: the one plugin that takes a configuration is %s", p.Name,
				podSecurityName)
		case p.Configuration != nil:
			inner = p.Configuration.Raw
		case p.Path != "":
			path := p.Path
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(file), path)
			}
			if inner, err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
		seen = append(seen, p.Name)
	}
	return load.LoadFromData(inner)
}
