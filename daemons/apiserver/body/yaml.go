package body

import (
	"fmt"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"
	nodes "sigs.k8s.io/yaml/goyaml.v3"

	"clusterctl/daemons/apiserver/request"
)

// FromYAML converts a client's YAML to JSON. doubts are what strict decoding would refuse. The size after expanding
// aliases is limited as JSON bodies are, because a document can repeat a long text by aliases.
func FromYAML(text []byte) (data []byte, doubts []error, err error) {
	if isPlainJSON(text) {
		return text, nil, nil
	}
	if anchorPattern.Match(text) && aliasPattern.Match(text) {
		size, err := expandedSize(text)
		if err != nil {
			return nil, nil, err
		}
		if size > request.MaxBody {
			return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", request.MaxBody))
		}
	}
	if data, err = yaml.YAMLToJSON(text); err != nil {
		return nil, nil, err
	}
	if _, err := yaml.YAMLToJSONStrict(text); err != nil {
		doubts = append(doubts, err)
	}
	return data, doubts, nil
}

// anchor and alias match every anchor and alias. They also match other text, such as in a command.
var (
	anchorPattern = regexp.MustCompile(`&[0-9A-Za-z_-]`)
	aliasPattern  = regexp.MustCompile(`\*[0-9A-Za-z_-]`)
)

// expandedSize returns about how long a document is with each alias replaced by its anchor's value, at most a little
// more than request.MaxBody.
func expandedSize(text []byte) (int, error) {
	var document nodes.Node
	if err := nodes.Unmarshal(text, &document); err != nil {
		return 0, err
	}
	sizes := map[*nodes.Node]int{}
	var size func(n *nodes.Node) int
	size = func(n *nodes.Node) int {
		if s, ok := sizes[n]; ok {
			return s
		}
		sizes[n] = 0 // the decoder refuses a node that contains itself
		s := len(n.Value) + 2
		if n.Kind == nodes.AliasNode {
			s = size(n.Alias)
		}
		for _, part := range n.Content {
			s = min(s+size(part)+1, request.MaxBody+1)
		}
		sizes[n] = s
		return s
	}
	return size(&document), nil
}
