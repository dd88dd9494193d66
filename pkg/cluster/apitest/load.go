package apitest

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"

	"sigs.k8s.io/yaml"
)

// AddYAML adds the documents of a YAML or JSON file, Lists among them.
func (s *Server) AddYAML(data []byte) error {
	for _, doc := range bytes.Split(append([]byte("\n"), data...), []byte("\n---")) {
		var u object
		if err := yaml.Unmarshal(doc, &u); err != nil {
			return fmt.Errorf("read objects: %w", err)
		}
		if u == nil {
			continue
		}
		items, isList := u["items"].([]any)
		if !isList {
			items = []any{u}
		}
		for _, item := range items {
			o, ok := item.(object)
			if !ok {
				return fmt.Errorf("read objects: an item is no object")
			}
			if err := s.add(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// AddFS adds every .yaml, .yml and .json file of a folder tree.
func (s *Server) AddFS(fsys fs.FS) error {
	return fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch path.Ext(name) {
		case ".yaml", ".yml", ".json":
		default:
			return nil
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if err := s.AddYAML(data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}
