// Answers line by line; part of the answer is thrown.

#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Guard {
	long &count;
	explicit Guard(long &count) : count(count) { ++count; }
	~Guard() { --count; }
};

struct Shape {
	virtual ~Shape() = default;
	virtual double area() const = 0;
};

struct Square : Shape {
	double side;
	explicit Square(double side) : side(side) {}
	double area() const override { return side * side; }
};

struct Disc : Shape {
	double radius;
	explicit Disc(double radius) : radius(radius) {}
	double area() const override { return 3 * radius * radius; }
};

static long open_guards = 0;

static long deep(long number, int depth) {
	Guard guard(open_guards);
	if (depth == 0) {
		if (number % 3 == 0) throw std::runtime_error("three " + std::to_string(number));
		if (number % 3 == 1) throw number;
		return number;
	}
	try {
		return deep(number, depth - 1) + depth;
	} catch (long thrown) {
		if (depth % 2) throw;
		throw thrown + depth;
	}
}

int main() {
	std::string line;
	std::map<std::string, int> seen;
	while (std::getline(std::cin, line)) {
		long number = std::stol(line);
		++seen[std::to_string(number % 17)];
		std::vector<std::unique_ptr<Shape>> shapes;
		for (long i = 0; i < number % 50; i++)
			if (i % 2) shapes.push_back(std::make_unique<Square>(double(i)));
			else shapes.push_back(std::make_unique<Disc>(double(i)));
		double area = 0;
		for (const auto &shape : shapes) area += shape->area();
		std::cout << area << ' ' << seen.size() << ' ';
		try {
			std::cout << deep(number, 9);
		} catch (const std::exception &error) {
			std::cout << error.what();
		} catch (long thrown) {
			std::cout << thrown;
		}
		std::cout << ' ' << open_guards << std::endl;
	}
}
