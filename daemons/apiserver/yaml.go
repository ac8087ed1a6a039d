package apiserver

import (
	"fmt"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"
	nodes "sigs.k8s.io/yaml/goyaml.v3"
)

// fromYAML makes JSON of YAML that a client sent. doubts are what a strict reader would refuse. What it stands for is
// bounded as JSON is: a document says a long text once and means it as often as it likes.
func fromYAML(text []byte) (data []byte, doubts []error, err error) {
	if anchor.Match(text) && alias.Match(text) {
		size, err := meant(text)
		if err != nil {
			return nil, nil, err
		}
		if size > maxBody {
			return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
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

// What is no anchor and no alias looks like one as well, such as in a command. None of them looks otherwise.
var (
	anchor = regexp.MustCompile(`&[0-9A-Za-z_-]`)
	alias  = regexp.MustCompile(`\*[0-9A-Za-z_-]`)
)

// meant is about how long a document is with each alias replaced by what it stands for, or a little more than maxBody.
func meant(text []byte) (int, error) {
	var document nodes.Node
	if err := nodes.Unmarshal(text, &document); err != nil {
		return 0, err
	}
	known := map[*nodes.Node]int{}
	var size func(n *nodes.Node) int
	size = func(n *nodes.Node) int {
		if s, ok := known[n]; ok {
			return s
		}
		known[n] = 0 // what contains itself is refused by who reads it
		s := len(n.Value) + 2
		if n.Kind == nodes.AliasNode {
			s = size(n.Alias)
		}
		for _, part := range n.Content {
			s = min(s+size(part)+1, maxBody+1)
		}
		known[n] = s
		return s
	}
	return size(&document), nil
}
